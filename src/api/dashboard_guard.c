/* Off loopback anybody may knock. Who asks too much waits; who gives wrong tokens waits ever longer, and while he waits
 * no token of his is looked at, so that guessing is slow whatever the guess. Per address; of IPv6 the first half of it,
 * since whoever has one has all of those. */
#include "api/dashboard_internal.h"

#include "base/address.h"

#include <stdio.h>
#include <string.h>

enum {
    BURST = 400,         /* requests at once ... */
    PER_SECOND = 100,    /* ... and after that */
    FAILURES_FREE = 5,   /* wrong tokens before one waits */
    LONGEST_S = 300,     /* that one waits at most */
    FORGET_MS = 3600000, /* wrong tokens count so long */
};

/* "1.2.3.4:5" to "1.2.3.4"; "[2001:db8:1:2:3::4]:5" to "2001:db8:1:2". */
static void print_key(const char *peer, char out[TM_DASHBOARD_KEY_MAX])
{
    char host[TM_ADDRESS_MAX];
    char port[TM_PORT_MAX];
    if (tm_address_split(peer, host, port, NULL) != 0) (void)snprintf(host, sizeof host, "?");
    int groups = 0;
    for (char *at = host; *at != '\0'; at++) {
        groups += *at == ':';
        if (groups == 4) *at-- = '\0';
        if (groups == 4) break;
    }
    (void)snprintf(out, TM_DASHBOARD_KEY_MAX, "%.*s", TM_DASHBOARD_KEY_MAX - 1, host);
}

/* Its row, or a new one in the place of whoever was heard least lately. */
static struct tm_dashboard_knock *row_of(struct tm_dashboard_guard *guard, const char *peer, int64_t now_ms)
{
    char key[TM_DASHBOARD_KEY_MAX];
    struct tm_dashboard_knock *oldest = &guard->rows[0];
    print_key(peer, key);
    for (size_t i = 0; i < TM_DASHBOARD_KNOCKS; i++) {
        struct tm_dashboard_knock *row = &guard->rows[i];
        if (strcmp(row->key, key) == 0) return row;
        if (row->key[0] == '\0' || (oldest->key[0] != '\0' && row->heard_ms < oldest->heard_ms)) oldest = row;
    }
    *oldest = (struct tm_dashboard_knock){.heard_ms = now_ms, .left = BURST * 1000};
    memcpy(oldest->key, key, sizeof key);
    return oldest;
}

int64_t tm_dashboard__admit(struct tm_dashboard_guard *guard, const char *peer, int64_t now_ms)
{
    struct tm_dashboard_knock *row = row_of(guard, peer, now_ms);
    int64_t passed_ms = now_ms - row->heard_ms;
    row->left += passed_ms * PER_SECOND;
    if (row->left > BURST * 1000) row->left = BURST * 1000;
    row->heard_ms = now_ms;
    if (now_ms < row->locked_ms) return row->locked_ms - now_ms;
    if (row->failures > 0 && now_ms - row->failed_ms > FORGET_MS) row->failures = 0;
    if (row->left < 1000) return (1000 - row->left) / PER_SECOND + 1;
    row->left -= 1000;
    return 0;
}

void tm_dashboard__wrong_token(struct tm_dashboard_guard *guard, const char *peer, int64_t now_ms)
{
    struct tm_dashboard_knock *row = row_of(guard, peer, now_ms);
    row->failures++;
    row->failed_ms = now_ms;
    if (row->failures <= FAILURES_FREE) return;
    int over = row->failures - FAILURES_FREE - 1;
    int64_t wait_s = over < 9 ? (int64_t)1 << over : LONGEST_S;
    row->locked_ms = now_ms + 1000 * (wait_s < LONGEST_S ? wait_s : LONGEST_S);
}

void tm_dashboard__right_token(struct tm_dashboard_guard *guard, const char *peer, int64_t now_ms)
{
    row_of(guard, peer, now_ms)->failures = 0;
}
