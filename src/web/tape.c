#include "web/tape.h"

#include "base/alloc.h"
#include "base/doc.h"
#include "base/jsonout.h"
#include "base/log.h"

#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { TAPE_MAX = 256 << 20, LINES_MAX = 1 << 20, LINE_MAX_BYTES = 32 << 20, LONG_WORD = 256, ASKED_MAX = 1 << 20 };
enum { OBJECTS_MAX = 4096, OBJECT_BYTES_MAX = 1 << 20 };

struct line {
    char *asked;
    char *answer;
    char *words; /* where no answer came */
    struct tm_web_answer about;
    int rc;
    bool used;
};

/* What was put while a tape is played: objects' contents are on none, and what is put is what is got. */
struct object {
    char *name; /* "us-east-1/s3 /BUCKET/KEY" */
    char *data;
    size_t length;
};

static const char *const note_names[TM_TAPE_NOTES] = {"region", "project", "subscription"};

static struct {
    pthread_mutex_t lock;
    struct tm_env *env;
    bool records, replays;
    bool failed; /* the file cannot be written, and that was said */
    char path[1024];
    int64_t offset;
    char notes[TM_TAPE_NOTES][TM_TAPE_NOTE_MAX];
    struct line *lines;
    size_t count, capacity;
    struct object *objects;
    size_t object_count, object_capacity;
} tape = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const char removed[] = "(removed)";

/* ---- what is not written ---- */

/* The end of a name decides: LaunchTemplateData.UserData. */
static bool is_secret_name(const char *name, size_t length)
{
    static const char *const names[] = {
        "userdata",      "secretaccesskey", "accesskeyid",   "sessiontoken",  "access_token",    "accesstoken",
        "refresh_token", "refreshtoken",    "id_token",      "client_secret", "clientsecret",    "assertion",
        "private_key",   "privatekey",      "password",      "passworddata",  "keymaterial",     "customdata",
        "adminpassword", "token",           "authorization", "sig",           "webidentitytoken"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t n = strlen(names[i]);
        bool whole = length == n || (length > n && name[length - n - 1] == '.');
        if (whole && strncasecmp(name + length - n, names[i], n) == 0) return true;
    }
    return length > 6 && strncasecmp(name, "x-amz-", 6) == 0;
}

/* "a=1&b=2"; what is long is no parameter that anybody needs to see. */
static void put_form(struct tm_text *out, const char *text, size_t length)
{
    const char *end = text + length;
    for (const char *at = text; at < end;) {
        const char *next = memchr(at, '&', (size_t)(end - at));
        const char *stop = next != NULL ? next : end;
        const char *equals = memchr(at, '=', (size_t)(stop - at));
        size_t name = (size_t)((equals != NULL ? equals : stop) - at);
        tm_text_append(out, at, name);
        if (equals != NULL && is_secret_name(at, name))
            tm_text_printf(out, "=%s", removed);
        else
            tm_text_append(out, at + name, (size_t)(stop - at) - name);
        if (next == NULL) break;
        tm_text_putc(out, '&');
        at = next + 1;
    }
}

static void clear_json(json_t *value, int depth)
{
    const char *key = NULL;
    json_t *one = NULL;
    void *more = NULL;
    size_t i = 0;
    if (depth > 64) return;
    json_object_foreach_safe(value, more, key, one)
    {
        bool secret = json_is_string(one) && (is_secret_name(key, strlen(key)) || json_string_length(one) > LONG_WORD ||
                                              strstr(json_string_value(one), "tmt1_") != NULL);
        if (secret)
            (void)json_object_set_new(value, key, json_string(removed));
        else
            clear_json(one, depth + 1);
    }
    json_array_foreach(value, i, one) clear_json(one, depth + 1);
}

static void put_json(struct tm_text *out, const char *text, size_t length)
{
    json_t *root = NULL;
    if (tm_json_load("", text, length, &root, NULL) == 0) clear_json(root, 0);
    char *words = root != NULL ? json_dumps(root, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    tm_text_puts(out, words != NULL ? words : removed);
    tm_free(words);
    json_decref(root);
}

/* The text of elements whose name says that it is one. */
static void put_xml(struct tm_text *out, const char *text, size_t length)
{
    const char *end = text + length;
    for (const char *at = text; at < end;) {
        const char *open = memchr(at, '<', (size_t)(end - at));
        const char *close = open != NULL ? memchr(open, '>', (size_t)(end - open)) : NULL;
        if (close == NULL) {
            tm_text_append(out, at, (size_t)(end - at));
            return;
        }
        tm_text_append(out, at, (size_t)(close + 1 - at));
        at = close + 1;
        const char *stop = at < end ? memchr(at, '<', (size_t)(end - at)) : NULL;
        size_t name = strcspn(open + 1, " />");
        bool is_value = name == 5 && strncmp(open + 1, "Value", 5) == 0; /* of a user delegation key; EC2's are small */
        bool names = open[1] != '/' && (is_value || is_secret_name(open + 1, name));
        if (stop == NULL || !names || stop == at) continue;
        tm_text_puts(out, removed);
        at = stop;
    }
}

static bool is_json(const char *text, size_t length)
{
    return length > 0 && (text[0] == '{' || text[0] == '[');
}

/* ---- what is asked ---- */

/* A header's value in lines "Name: value\n"; its length. */
static size_t find_header(const char *headers, const char *name, const char **out)
{
    size_t length = strlen(name);
    for (const char *at = headers; *at != '\0'; at += strcspn(at, "\n"), at += *at == '\n') {
        if (strncasecmp(at, name, length) != 0 || at[length] != ':') continue;
        *out = at + length + 1 + strspn(at + length + 1, " ");
        return strcspn(*out, "\n");
    }
    return 0;
}

/* "us-east-1/ec2" of a signature of AWS; "-": none. */
static void put_scope(struct tm_text *out, const char *headers, const char *url)
{
    const char *value = NULL;
    size_t length = find_header(headers, "authorization", &value);
    const char *at = length > 0 ? strstr(value, "Credential=") : NULL;
    if (at == NULL || at >= value + length) at = strstr(url, "X-Amz-Credential=");
    for (int part = 0; at != NULL && part < 2; part++) { /* behind key and date */
        at = strpbrk(at, "/\n");
        at = at != NULL && *at == '/' ? at + 1 : NULL;
    }
    size_t region = at != NULL ? strcspn(at, "/\n") : 0;
    if (at == NULL || at[region] != '/') {
        tm_text_putc(out, '-');
        return;
    }
    tm_text_append(out, at, region + 1 + strcspn(at + region + 1, "/\n"));
}

static void put_kind(struct tm_text *out, const char *headers, const char *body, size_t length)
{
    const char *value = NULL;
    size_t target = find_header(headers, "x-amz-target", &value);
    if (target > 0)
        tm_text_printf(out, " %.*s", (int)target, value);
    else if (length > 7 && strncmp(body, "Action=", 7) == 0)
        for (size_t i = 7; i == 7 || (i < length && body[i] != '&'); i++)
            tm_text_printf(out, i == 7 ? " %c" : "%c", body[i]);
}

/* "/BUCKET" of https://BUCKET.s3.REGION.amazonaws.com: the same words wherever S3 is. */
static void put_bucket(struct tm_text *out, const char *url)
{
    const char *host = strstr(url, "://");
    host = host != NULL ? host + 3 : url;
    size_t length = strcspn(host, "/?");
    const char *mark = strstr(host, ".s3.");
    const char *ending = strstr(host, ".amazonaws.com");
    if (mark == NULL || ending == NULL || ending >= host + length || mark >= ending) return;
    tm_text_printf(out, "/%.*s", (int)(mark - host), host);
}

char *tm_tape__describe(const char *method, const char *url, const char *headers, const void *body, size_t length)
{
    struct tm_text out;
    char *copy = NULL;
    if (!tape.records && !tape.replays) return NULL;
    const char *path = strstr(url, "://");
    path = path != NULL ? strchr(path + 3, '/') : url;
    if (path == NULL) path = "/";
    size_t stem = strcspn(path, "?");
    const char *text = body != NULL ? body : "";
    tm_text_init(&out, ASKED_MAX);
    tm_text_printf(&out, "%s ", method);
    put_scope(&out, headers, url);
    tm_text_putc(&out, ' ');
    put_bucket(&out, url);
    tm_text_append(&out, path, stem);
    put_kind(&out, headers, text, length);
    tm_text_putc(&out, '\n');
    if (path[stem] == '?') put_form(&out, path + stem + 1, strlen(path + stem + 1));
    if (length > 7 && strncmp(text, "Action=", 7) == 0)
        put_form(&out, text, length);
    else if (is_json(text, length))
        put_json(&out, text, length);
    else if (length > 0)
        tm_text_printf(&out, "(%zu bytes)", length);
    if (tm_text_status(&out, NULL) == 0 && (copy = tm_alloc(out.length + 1)) != NULL)
        memcpy(copy, tm_text_string(&out), out.length + 1);
    tm_text_deinit(&out);
    return copy;
}

/* ---- recording ---- */

static void put_answer(struct tm_text *out, const char *asked, const struct tm_web_answer *answer)
{
    const char *text = tm_text_string(&answer->body);
    size_t length = answer->body.length;
    const char *scope = strchr(asked, ' ');
    bool is_plain = scope == NULL || strncmp(scope, " - ", 3) == 0; /* nobody signed it: it may give credentials */
    if (is_json(text, length))
        put_json(out, text, length);
    else if (length > 0 && text[0] == '<')
        put_xml(out, text, length);
    else if (length > 0)
        tm_text_puts(out, is_plain ? removed : "(not kept)");
}

/* With the lock. */
static void write_line(struct tm_text *line)
{
    struct tm_error e;
    int rc = tm_text_status(line, &e);
    if (rc == 0) rc = tape.env->file_extend(tape.env, tape.path, tape.offset, tm_text_string(line), line->length, &e);
    if (rc == 0) tape.offset += (int64_t)line->length;
    if (rc != 0 && !tape.failed) tm_log(TM_LOG_WARN, "%s: what is asked is not recorded: %s", tape.path, e.text);
    tape.failed = tape.failed || rc != 0;
}

void tm_tape__keep(const char *asked, bool secret, int rc, const char *words, const struct tm_web_answer *answer)
{
    struct tm_text text;
    struct tm_text line;
    struct tm_jsonout json;
    if (!tape.records || asked == NULL) return;
    tm_text_init(&text, LINE_MAX_BYTES);
    tm_text_init(&line, LINE_MAX_BYTES);
    if (rc == 0 && secret && answer->status / 100 == 2)
        tm_text_puts(&text, removed);
    else if (rc == 0)
        put_answer(&text, asked, answer);
    tm_jsonout_init_line(&json, &line);
    tm_jsonout_object(&json, NULL);
    tm_jsonout_string(&json, "asked", asked);
    tm_jsonout_integer(&json, "status", rc == 0 ? answer->status : 0);
    if (rc != 0) tm_jsonout_integer(&json, "code", -rc);
    if (rc != 0) tm_jsonout_string(&json, "words", words);
    if (rc == 0 && answer->etag[0] != '\0') tm_jsonout_string(&json, "etag", answer->etag);
    if (rc == 0 && answer->region[0] != '\0') tm_jsonout_string(&json, "bucket_region", answer->region);
    if (rc == 0 && answer->retry_after_ms > 0) tm_jsonout_integer(&json, "retry_after_ms", answer->retry_after_ms);
    if (rc == 0) tm_jsonout_string(&json, "answer", tm_text_string(&text));
    tm_jsonout_end(&json);
    (void)pthread_mutex_lock(&tape.lock);
    write_line(&line);
    (void)pthread_mutex_unlock(&tape.lock);
    tm_text_deinit(&line);
    tm_text_deinit(&text);
}

void tm_tape__note(enum tm_tape__note_kind kind, const char *value)
{
    struct tm_text line;
    struct tm_jsonout json;
    (void)pthread_mutex_lock(&tape.lock);
    bool due = tape.records && tape.notes[kind][0] == '\0';
    if (due) {
        (void)snprintf(tape.notes[kind], sizeof tape.notes[kind], "%s", value);
        tm_text_init(&line, LONG_WORD);
        tm_jsonout_init_line(&json, &line);
        tm_jsonout_object(&json, NULL);
        tm_jsonout_integer(&json, "tape", 1);
        tm_jsonout_string(&json, note_names[kind], value);
        tm_jsonout_end(&json);
        write_line(&line);
        tm_text_deinit(&line);
    }
    (void)pthread_mutex_unlock(&tape.lock);
}

int tm_tape_record(struct tm_env *env, const char *path, struct tm_error *e)
{
    static const char head[] = "{\"tape\": 1}\n";
    if (strlen(path) >= sizeof tape.path) return tm_error_set(e, TM_EUSAGE, "%.100s: the name is too long", path);
    int rc = env->file_write_private(env, path, head, sizeof head - 1, e);
    if (rc != 0) return rc;
    tm_tape__end();
    tape.env = env;
    (void)snprintf(tape.path, sizeof tape.path, "%s", path);
    tape.offset = sizeof head - 1;
    tape.records = true;
    return 0;
}

/* ---- playing ---- */

bool tm_tape__is_replayed(void)
{
    return tape.replays;
}

void tm_tape__noted(enum tm_tape__note_kind kind, char out[TM_TAPE_NOTE_MAX])
{
    (void)snprintf(out, TM_TAPE_NOTE_MAX, "%s", tape.replays ? tape.notes[kind] : "");
}

static char *copy_of(const json_t *root, const char *key)
{
    const char *text = json_string_value(json_object_get(root, key));
    size_t length = text != NULL ? strlen(text) : 0;
    char *copy = tm_alloc(length + 1);
    if (copy != NULL) memcpy(copy, text != NULL ? text : "", length + 1);
    return copy;
}

static void free_line(struct line *line)
{
    tm_free(line->asked);
    tm_free(line->answer);
    tm_free(line->words);
}

static int take_line(const json_t *root, struct tm_error *e)
{
    const char *etag = json_string_value(json_object_get(root, "etag"));
    const char *bucket = json_string_value(json_object_get(root, "bucket_region"));
    if (json_object_get(root, "tape") != NULL) {
        for (size_t i = 0; i < TM_TAPE_NOTES; i++) {
            const char *note = json_string_value(json_object_get(root, note_names[i]));
            if (note != NULL) (void)snprintf(tape.notes[i], sizeof tape.notes[i], "%.*s", TM_TAPE_NOTE_MAX - 1, note);
        }
        return 0;
    }
    int64_t code = json_integer_value(json_object_get(root, "code"));
    if (json_object_get(root, "asked") == NULL || code < 0 || code > 100)
        return tm_error_set(e, TM_EINPUT, "not what was asked and answered");
    int rc = tm_grow((void **)&tape.lines, &tape.capacity, tape.count + 1, sizeof *tape.lines, LINES_MAX);
    if (rc != 0) return tm_error_set(e, (enum tm_code) - rc, "more than %d answers", LINES_MAX);
    struct line *line = &tape.lines[tape.count];
    *line = (struct line){.asked = copy_of(root, "asked"),
                          .answer = copy_of(root, "answer"),
                          .words = copy_of(root, "words"),
                          .rc = -(int)code};
    line->about.total = -1;
    line->about.status = (int)json_integer_value(json_object_get(root, "status"));
    (void)snprintf(line->about.etag, sizeof line->about.etag, "%.255s", etag != NULL ? etag : "");
    (void)snprintf(line->about.region, sizeof line->about.region, "%.63s", bucket != NULL ? bucket : "");
    if (line->asked == NULL || line->answer == NULL || line->words == NULL) {
        free_line(line);
        return tm_error_nomem(e);
    }
    tape.count++;
    return 0;
}

int tm_tape__read(const char *name, const char *text, size_t length, struct tm_error *e)
{
    const char *end = text + length;
    int number = 0;
    for (const char *at = text; at < end;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        json_t *root = NULL;
        if (stop == NULL) stop = end;
        number++;
        int rc = stop == at ? 0 : tm_json_load(name, at, (size_t)(stop - at), &root, e);
        if (rc == 0 && root != NULL)
            rc = json_is_object(root) ? take_line(root, e) : tm_error_set(e, TM_EINPUT, "not an object");
        json_decref(root);
        if (rc != 0) return tm_error_wrap(e, rc, "%s:%d", name, number);
        at = stop + 1;
    }
    tape.replays = true;
    return 0;
}

int tm_tape_replay(struct tm_env *env, const char *path, struct tm_error *e)
{
    struct tm_text text;
    tm_tape__end();
    tm_text_init(&text, TAPE_MAX);
    int rc = env->file_read(env, path, &text, e);
    if (rc == 0) rc = tm_tape__read(path, tm_text_string(&text), text.length, e);
    tm_text_deinit(&text);
    if (rc != 0) tm_tape__end();
    return rc;
}

static bool is_action(const char *asked, const char *name)
{
    size_t head = strcspn(asked, "\n");
    size_t length = strlen(name);
    return head > length && asked[head - length - 1] == ' ' && strncmp(asked + head - length, name, length) == 0;
}

/* How many lines may answer: whoever asks more often than the recording did does not hear that instances have ended
 * before somebody ended one. */
static size_t count_told(const char *asked)
{
    if (!is_action(asked, "DescribeInstances")) return tape.count;
    for (size_t i = 0; i < tape.count; i++)
        if (is_action(tape.lines[i].asked, "TerminateInstances")) return tape.lines[i].used ? tape.count : i;
    return tape.count;
}

/* With the lock: of the first `count`, the next to the same words, else to the same kind of request, else the last of
 * these again. */
static struct line *find_line(const char *asked, size_t count)
{
    size_t head = strcspn(asked, "\n") + 1;
    struct line *best = NULL;
    int best_rank = 0;
    for (size_t i = 0; i < count; i++) {
        struct line *line = &tape.lines[i];
        bool same = strcmp(line->asked, asked) == 0;
        if (strncmp(line->asked, asked, head) != 0) continue;
        int rank = (line->used ? 0 : 2) + (same ? 2 : 1);
        bool better = rank > best_rank || (line->used && rank == best_rank);
        if (better) best = line;
        if (better) best_rank = rank;
    }
    return best;
}

/* ---- objects ---- */

/* Where a request is about one object of S3, "us-east-1/s3 /BUCKET/KEY": its length; 0: it is not. */
static size_t object_of(const char *asked, const char **out)
{
    const char *scope = strchr(asked, ' ');
    size_t head = strcspn(asked, "\n");
    const char *mark = scope != NULL ? strstr(scope, "/s3 /") : NULL;
    if (mark == NULL || mark >= asked + head || strchr(scope + 1, ' ') != mark + 3) return 0;
    const char *query = asked[head] == '\n' ? asked + head + 1 : asked + head;
    if (strstr(query, "list-type=") != NULL || strncmp(query, "upload", 6) == 0 || strstr(query, "partNumber=") != NULL)
        return 0;
    *out = scope + 1;
    return (size_t)(asked + head - (scope + 1));
}

static struct object *find_object(const char *name, size_t length)
{
    for (size_t i = 0; i < tape.object_count; i++)
        if (strlen(tape.objects[i].name) == length && strncmp(tape.objects[i].name, name, length) == 0)
            return &tape.objects[i];
    return NULL;
}

static void drop_object(struct object *object)
{
    tm_free(object->name);
    tm_free(object->data);
    *object = tape.objects[--tape.object_count];
}

/* What is too large, or one too many, is not kept: whoever asks for it gets what the tape has. */
static void put_object(const char *name, size_t name_length, const void *data, size_t length)
{
    struct object *old = find_object(name, name_length);
    if (old != NULL) drop_object(old);
    if (length > OBJECT_BYTES_MAX || tm_grow((void **)&tape.objects, &tape.object_capacity, tape.object_count + 1,
                                             sizeof *tape.objects, OBJECTS_MAX) != 0)
        return;
    struct object object = {.name = tm_alloc(name_length + 1), .data = tm_alloc(length + 1), .length = length};
    if (object.name == NULL || object.data == NULL) {
        tm_free(object.name);
        tm_free(object.data);
        return;
    }
    memcpy(object.name, name, name_length);
    object.name[name_length] = '\0';
    if (length > 0) memcpy(object.data, data, length);
    tape.objects[tape.object_count++] = object;
}

/* With the lock: of an object that the recording does not know by this name. */
static void answer_object(const char *asked, const struct object *object, struct tm_web_answer *about)
{
    bool puts = strncmp(asked, "PUT ", 4) == 0;
    bool drops = strncmp(asked, "DELETE ", 7) == 0;
    *about = (struct tm_web_answer){.total = -1};
    about->status = puts ? 200 : drops ? 204 : object != NULL ? 200 : 404;
    if (about->status == 200) (void)snprintf(about->etag, sizeof about->etag, "\"replayed\"");
}

/* With the lock: the body of the answer, and what follows for the object. */
static void move_object(const char *asked, const char *name, size_t length, const struct tm_tape__body *body,
                        const char *kept, int status, struct tm_text *out)
{
    struct object *object = find_object(name, length);
    bool good = status >= 200 && status < 300;
    if (good && strncmp(asked, "PUT ", 4) == 0)
        put_object(name, length, body->data, body->length);
    else if (good && strncmp(asked, "DELETE ", 7) == 0 && object != NULL)
        drop_object(object);
    else if (good && strncmp(asked, "GET ", 4) == 0 && object != NULL) {
        tm_text_append(out, object->data, object->length);
        return;
    }
    tm_text_puts(out, kept);
}

int tm_tape__play(const char *asked, const struct tm_tape__body *body, struct tm_web_answer *out, struct tm_error *e)
{
    const char *name = NULL;
    (void)pthread_mutex_lock(&tape.lock);
    struct line *line = asked != NULL ? find_line(asked, count_told(asked)) : NULL;
    if (line == NULL && asked != NULL) line = find_line(asked, tape.count);
    size_t length = asked != NULL ? object_of(asked, &name) : 0;
    int rc = 0;
    if (line == NULL && length == 0) {
        rc = tm_error_set(e, TM_EINPUT, "the recording has no answer to %.*s",
                          asked != NULL ? (int)strcspn(asked, "\n") : 0, asked != NULL ? asked : "");
    } else if (line != NULL && line->rc != 0) {
        rc = tm_error_set(e, (enum tm_code) - line->rc, "%s", line->words);
    } else {
        struct tm_text text = out->body;
        struct tm_web_answer about;
        int tries = out->tries;
        if (line != NULL)
            about = line->about;
        else
            answer_object(asked, find_object(name, length), &about);
        const char *kept = line != NULL ? line->answer : "";
        tm_text_clear(&text);
        if (length > 0)
            move_object(asked, name, length, body, kept, about.status, &text);
        else
            tm_text_puts(&text, kept);
        *out = about;
        out->body = text;
        out->tries = tries;
        rc = tm_text_status(&text, e);
    }
    if (line != NULL) line->used = true;
    (void)pthread_mutex_unlock(&tape.lock);
    return rc;
}

void tm_tape__end(void)
{
    for (size_t i = 0; i < tape.count; i++)
        free_line(&tape.lines[i]);
    while (tape.object_count > 0)
        drop_object(&tape.objects[tape.object_count - 1]);
    tm_free(tape.objects);
    tm_free(tape.lines);
    tape.objects = NULL;
    tape.object_capacity = 0;
    tape.lines = NULL;
    tape.count = tape.capacity = 0;
    tape.records = tape.replays = tape.failed = false;
    memset(tape.notes, 0, sizeof tape.notes);
}
