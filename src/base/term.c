#include "base/term.h"

#include "base/number.h"
#include "base/utf8.h"

#include <stdint.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

static bool is_set(struct tm_env *env, const char *name)
{
    const char *value = env->variable(env, name);
    return value != NULL && value[0] != '\0';
}

static bool locale_is_utf8(struct tm_env *env, bool is_terminal)
{
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!is_set(env, names[i])) continue;
        const char *value = env->variable(env, names[i]);
        const char *dot = strchr(value, '.');
        if (dot != NULL) return strncasecmp(dot + 1, "utf-8", 5) == 0 || strncasecmp(dot + 1, "utf8", 4) == 0;
        return !is_terminal || (strcmp(value, "C") != 0 && strcmp(value, "POSIX") != 0);
    }
    return true;
}

static int width_of(struct tm_env *env, int fd, bool is_terminal)
{
    int64_t columns = 0;
    const char *asked = env->variable(env, "COLUMNS");
    if (asked != NULL && tm_number_i64(asked, strlen(asked), &columns) && columns >= 20 && columns <= 10000)
        return (int)columns;
    struct winsize size;
    if (is_terminal && ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col >= 20) return size.ws_col;
    return is_terminal ? 80 : 0;
}

struct tm_term tm_term_detect(struct tm_env *env, int fd, enum tm_color_mode mode)
{
    struct tm_term term = {.is_terminal = isatty(fd) == 1};
    const char *kind = env->variable(env, "TERM");
    bool dumb = kind == NULL || strcmp(kind, "dumb") == 0;
    term.color =
        mode == TM_COLOR_ALWAYS || (mode == TM_COLOR_AUTO && term.is_terminal && !dumb && !is_set(env, "NO_COLOR"));
    term.utf8 = locale_is_utf8(env, term.is_terminal);
    term.width = width_of(env, fd, term.is_terminal);
    return term;
}

void tm_term_put(const struct tm_term *term, struct tm_text *out, enum tm_color color, const char *string)
{
    static const char *const codes[] = {
        [TM_PLAIN] = "",   [TM_BOLD] = "1",    [TM_DIM] = "2",   [TM_RED] = "31",
        [TM_GREEN] = "32", [TM_YELLOW] = "33", [TM_BLUE] = "34", [TM_CYAN] = "36",
    };
    if (!term->color || color == TM_PLAIN) {
        tm_text_puts(out, string);
        return;
    }
    tm_text_printf(out, "\033[%sm%s\033[0m", codes[color], string);
}

/* One code point and how many bytes it took; a byte that is no UTF-8 counts as one column of its own. */
static uint32_t next_code_point(const char *text, size_t *used)
{
    uint32_t point = (unsigned char)text[0];
    *used = tm_utf8__next(text, strlen(text), &point);
    if (*used == 0) *used = 1;
    return point;
}

static size_t columns_of(uint32_t point)
{
    if ((point >= 0x300 && point <= 0x36F) || point == 0x200B || (point >= 0xFE00 && point <= 0xFE0F)) return 0;
    if ((point >= 0x1100 && point <= 0x115F) || (point >= 0x2E80 && point <= 0xA4CF) ||
        (point >= 0xAC00 && point <= 0xD7A3) || (point >= 0xF900 && point <= 0xFAFF) ||
        (point >= 0xFF00 && point <= 0xFF60) || (point >= 0x1F300 && point <= 0x1FAFF))
        return 2;
    return 1;
}

size_t tm_term_columns(const char *string)
{
    size_t columns = 0;
    for (size_t used = 0; *string != '\0'; string += used)
        columns += columns_of(next_code_point(string, &used));
    return columns;
}

void tm_term__put_cut(const struct tm_term *term, struct tm_text *out, const char *string, size_t columns)
{
    if (tm_term_columns(string) <= columns) {
        tm_text_puts(out, string);
        return;
    }
    const char *ellipsis = term->utf8 ? "…" : "~";
    size_t taken = 0;
    size_t used = 0;
    for (const char *at = string; *at != '\0'; at += used) {
        size_t more = columns_of(next_code_point(at, &used));
        if (taken + more + 1 > columns) break;
        tm_text_append(out, at, used);
        taken += more;
    }
    if (columns > 0) tm_text_puts(out, ellipsis);
}

void tm_term_put_safe(struct tm_text *out, const char *bytes, size_t length)
{
    for (size_t at = 0; at < length;) {
        uint32_t point = 0;
        size_t used = tm_utf8__next(bytes + at, length - at, &point);
        /* U+0080 to U+009F command too: U+009B is what ESC [ is */
        bool control = used == 0 || point < 0x20 || (point >= 0x7F && point <= 0x9F);
        if (control)
            tm_text_putc(out, '?');
        else
            tm_text_append(out, bytes + at, used);
        at += used > 0 ? used : 1;
    }
}
