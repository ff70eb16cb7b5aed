/* The log: one line a message, on standard error, by level. Log where the cause is first known; never log an error and
 * return it too. */
#ifndef TM_BASE_LOG_H
#define TM_BASE_LOG_H

enum tm_log__level { TM_LOG_ERROR, TM_LOG_WARN, TM_LOG_INFO, TM_LOG_DEBUG };

void tm_log_set_level(enum tm_log__level level); /* messages above it are dropped; at start: WARN */
enum tm_log__level tm_log__level(void);

/* Where lines go, for tests and services; NULL: standard error, "warning: ..." */
typedef void (*tm_log_sink_f)(void *context, enum tm_log__level level, const char *line);
void tm_log_set_sink(tm_log_sink_f sink, void *context);

void tm_log(enum tm_log__level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Whatever the level is set to: for debug.h. */
void tm_log__always(enum tm_log__level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

const char *tm_log_level_name(enum tm_log__level level);

#endif
