/* What an instance is told about itself, in the words of three clouds: a pure function from what is known and a
 * request to an answer.
 *
 *   AWS    IMDSv2: PUT /latest/api/token with a time to live, then GET under /latest/meta-data with the token:
 *          instance-id, instance-type, placement/availability-zone, spot/instance-action, spot/termination-time,
 *          events/recommendations/rebalance (the last three: 404 until there is news)
 *   GCP    header Metadata-Flavor: Google; GET under /computeMetadata/v1/instance: id, zone, machine-type, preempted,
 *          maintenance-event; with wait_for_change, last_etag and timeout_sec
 *   Azure  header Metadata: true; GET /metadata/scheduledevents?api-version=2020-07-01 */
#ifndef TM_CLOUD_METADATA_H
#define TM_CLOUD_METADATA_H

#include "base/http.h"

#include <stdint.h>

enum { TM_METADATA_TOKENS = 8, TM_METADATA_TOKEN_TEXT = 40, TM_METADATA_HOLD_MAX_MS = 300000 };

/* What is known of the instance now. Times are UTC. */
struct tm_metadata {
    uint64_t id;
    const char *zone; /* borrowed */
    const char *type; /* borrowed */
    bool hinted;      /* it may go soon */
    int64_t hinted_utc_ms;
    bool noticed; /* it will go */
    int64_t noticed_utc_ms;
    int64_t loss_utc_ms;
    uint64_t version; /* changes with any of these: the ETag */
};

struct tm_metadata_tokens {
    struct {
        char text[TM_METADATA_TOKEN_TEXT]; /* "": none */
        int64_t expires_ms;
    } list[TM_METADATA_TOKENS];
    size_t next;
};

struct tm_metadata_answer {
    int64_t hold_ms; /* > 0: no answer yet; ask again when the version changes or after so long (with `waited`) */
};

/* Appends the whole response to `out`, or asks to hold. `waited`: a held request whose time is over, or whose version
 * changed. `random` makes tokens. */
struct tm_metadata_answer tm_metadata__respond(const struct tm_metadata *known, const struct tm_http_head *request,
                                               struct tm_metadata_tokens *tokens, int64_t now_ms, bool waited,
                                               const uint64_t random[2], struct tm_text *out);

/* Dates as HTTP and Azure write them: "Mon, 19 Sep 2016 18:29:47 GMT". */
void tm_http_date__print(int64_t utc_ms, char buffer[40]);
bool tm_http_date__parse(const char *text, size_t length, int64_t *out_utc_ms);

#endif
