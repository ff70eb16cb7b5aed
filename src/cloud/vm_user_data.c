#include "cloud/vm_user_data.h"

#include <string.h>

enum { GIVE_UP_S = 300 }; /* an agent without its coordinator */

void tm_vm__put_word(struct tm_text *out, const char *name, const char *text)
{
    tm_text_printf(out, "%s='", name);
    for (; *text != '\0'; text++) {
        if (*text == '\'')
            tm_text_puts(out, "'\\''");
        else
            tm_text_putc(out, *text);
    }
    tm_text_puts(out, "'\n");
}

static const char begin[] =
    "umask 077\n"
    "export HOME=/root\n"
    "d=/var/lib/tidemill\n"
    "mkdir -p $d && cd $d || exit 1\n"
    "exec >>$d/log 2>&1 </dev/null\n"
    "say() { echo \"$(date -u +%FT%TZ) $*\"; }\n"
    "put_log() { tail -c 262144 $d/log >$d/log.put; curl -fsS -m 60 $put_header -T $d/log.put \"$log_url\" >/dev/null; "
    "}\n"
    "end() { say \"$*; shutting down\"; put_log; power_off; sleep 600; exit 1; }\n"
    "(sleep $life; power_off) &\n"
    "say 'an instance of job' \"$job\"\n"
    "for i in 1 2 3 4 5; do\n"
    "    curl -fsS -m 600 --retry 3 --retry-connrefused -o program \"$program\" && break\n"
    "    sleep 5\n"
    "done\n"
    "echo \"$sha256  program\" | sha256sum -c - || end 'the program did not come, or is another'\n"
    "chmod 700 program\n"
    "if ldd ./program | grep 'not found' && command -v apt-get >/dev/null; then\n"
    "    apt-get update -q\n"
    "    for p in libcurl4 libexpat1 libjansson4 libfyaml0 libsqlite3-0 libprotobuf-c1 libxxhash0 libssl3 zlib1g; do\n"
    "        DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends $p\n"
    "    done\n"
    "fi\n"
    "./program --version || end 'the program does not run on this image: build it on the same distribution, or name "
    "another image'\n";

static const char wheel[] =
    "for i in 1 2 3 4 5; do\n"
    "    curl -fsS -m 600 --retry 3 --retry-connrefused -o \"$wheel_name\" \"$wheel\" && break\n"
    "    sleep 5\n"
    "done\n"
    "echo \"$wheel_sha256  $wheel_name\" | sha256sum -c - || end 'the Python package did not come, or is another'\n";

/* In a folder of its own: nothing of the image is changed, and environments that setup makes have it too. */
static const char install[] =
    "if ! python3 -m pip --version && command -v apt-get >/dev/null; then\n"
    "    apt-get update -q\n"
    "    DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends python3-pip\n"
    "fi\n"
    "python3 -m pip install -q --disable-pip-version-check --no-index --no-deps --target $d/python \"./$wheel_name\" "
    "||\n"
    "    end 'pip cannot install the Python package'\n"
    "export PYTHONPATH=$d/python${PYTHONPATH:+:$PYTHONPATH} TIDEMILL_WHEEL=$d/$wheel_name\n";

/* A notice ends the agent too: then the cloud takes the VM (and AWS does not charge for the first hour). */
static const char rest[] =
    "new_ticket() { curl -fsS -m 20 -o ticket.new \"$ticket_url\" 2>/dev/null && ! cmp -s ticket ticket.new && mv "
    "ticket.new "
    "ticket; }\n"
    "(umask 077; printf '%s' \"$ticket\" >ticket)\n"
    "put_log\n"
    "while :; do\n"
    "    rm -f renewed\n"
    "    ./program agent --join @$d/ticket --notice $notice --notice-left 1s --give-up ${give_up}s >agent.log 2>&1 &\n"
    "    agent=$!\n"
    "    (while sleep 5; do new_ticket && touch renewed && exec kill $agent; done) &\n"
    "    watcher=$!\n"
    "    wait $agent\n"
    "    status=$?\n"
    "    kill $watcher\n"
    "    cat agent.log\n"
    "    say \"the agent ended with status $status\"\n"
    "    [ -e renewed ] && { say 'a new ticket'; continue; }\n"
    "    noticed && { put_log; sleep 300; end 'noticed, but not taken'; }\n"
    "    [ $status = 0 ] && end 'not needed any more'\n"
    "    grep -qE 'joining|no answer from the coordinator' agent.log || end 'the agent failed'\n"
    "    put_log\n"
    "    until=$(($(date +%s) + silence))\n"
    "    until new_ticket; do\n"
    "        [ $(date +%s) -ge $until ] && end \"no word from the run for $silence s\"\n"
    "        sleep 2\n"
    "    done\n"
    "    say 'a new ticket'\n"
    "done\n";

const char *tm_vm__boot_script(void)
{
    return begin;
}

const char *tm_vm__wheel_script(void)
{
    return wheel;
}

void tm_vm__put_wheel(struct tm_text *out, const char *url, const char *name, const char *sha256)
{
    tm_vm__put_word(out, "wheel", url);
    tm_vm__put_word(out, "wheel_name", name);
    tm_vm__put_word(out, "wheel_sha256", sha256);
}

void tm_vm__put_guest(struct tm_text *out, const struct tm_vm__guest *guest)
{
    tm_vm__put_word(out, "notice", guest->notice);
    tm_vm__put_word(out, "put_header", guest->put_header);
    tm_text_printf(out, "noticed() {\n%s}\npower_off() {\n%s}\n", guest->noticed, guest->power_off);
}

int tm_vm__print_user_data(const struct tm_vm__user_data *data, struct tm_text *out, struct tm_error *e)
{
    const struct tm_vm__guest *guest = data->guest;
    size_t from = out->length;
    tm_text_puts(out, "#!/bin/bash\n# An instance of a Tidemill job.\n");
    tm_vm__put_word(out, "job", data->job);
    tm_vm__put_word(out, "program", data->program);
    tm_vm__put_word(out, "sha256", data->sha256);
    if (data->wheel != NULL) tm_vm__put_wheel(out, data->wheel, data->wheel_name, data->wheel_sha256);
    tm_vm__put_word(out, "ticket", data->ticket);
    tm_vm__put_word(out, "ticket_url", data->ticket_url);
    tm_vm__put_word(out, "log_url", data->log_url);
    if (data->words != NULL) tm_text_puts(out, data->words);
    long long give_up_s = data->silence_s < GIVE_UP_S ? data->silence_s : GIVE_UP_S;
    tm_text_printf(out, "silence=%lld\nlife=%lld\ngive_up=%lld\n", (long long)data->silence_s, (long long)data->life_s,
                   give_up_s);
    tm_vm__put_guest(out, guest);
    tm_text_puts(out, begin);
    if (data->wheel != NULL) {
        tm_text_puts(out, wheel);
        tm_text_puts(out, install);
    }
    if (data->setup != NULL && data->setup[0] != '\0') {
        tm_vm__put_word(out, "setup", data->setup);
        tm_text_puts(out, "say 'setup'\nput_log\n(\n");
        tm_text_puts(out, data->variables);
        tm_text_puts(out, "exec bash -c \"$setup\"\n) || end \"setup failed with status $?\"\n");
    }
    tm_text_puts(out, rest);
    int rc = tm_text_status(out, e);
    if (rc == 0 && out->length - from > guest->room)
        rc =
            tm_error_set(e, TM_ELIMIT,
                         "what a VM is told when it boots has %zu bytes, and %s takes %zu: make setup shorter (fetch a "
                         "script in it)",
                         out->length - from, guest->cloud, guest->room);
    return rc;
}
