/* Errors: one code that says what the caller must rebuild, and a chain of context in words.
 *
 * A fallible function returns 0, or a negative code, and takes as its last argument a `struct tm_error *` that lives on
 * the caller's stack (NULL: not interested in words). Outputs are set only on success.
 *
 *     if (rc != 0) return tm_error_wrap(e, rc, "reading trace %s", path);
 *
 * gives "reading trace a.csv: line 3: expected a count, got \"x\"". */
#ifndef TM_BASE_ERROR_H
#define TM_BASE_ERROR_H

#define TM_ERROR_TEXT_MAX 1024

/* X(name, what the caller has to do about it, exit status of a command that ends with it).
 * Grouped by the largest thing that is lost, so that recovery code can compare: the request only (ask again,
 * differently), one object (open or make it again), one peer (connect again), the process (start it again). */
#define TM_CODES(X)                                                                                                    \
    X(TM_OK, "nothing", 0)                                                                                             \
    /* the request */                                                                                                  \
    X(TM_EUSAGE, "correct the call", 2)                                                                                \
    X(TM_EINPUT, "correct the input", 2)                                                                               \
    X(TM_ENONE, "relax the constraints", 3)                                                                            \
    /* one object */                                                                                                   \
    X(TM_ENOTFOUND, "create or name the object", 2)                                                                    \
    X(TM_EEXISTS, "remove or reuse the object", 1)                                                                     \
    X(TM_ELIMIT, "raise the limit or ask for less", 2)                                                                 \
    X(TM_EBUSY, "wait for the object", 1)                                                                              \
    /* one peer */                                                                                                     \
    X(TM_ETIMEOUT, "ask the peer again", 1)                                                                            \
    X(TM_EPEER, "connect to the peer again", 1)                                                                        \
    X(TM_ECANCELED, "nothing: it was requested", 1)                                                                    \
    /* the process */                                                                                                  \
    X(TM_EFULL, "free some disk space", 1)                                                                             \
    X(TM_EIO, "repair the file system, then restart", 1)                                                               \
    X(TM_ENOMEM, "free some memory, then restart", 1)                                                                  \
    X(TM_EINTERNAL, "report a bug", 1)

enum tm_code {
#define TM_CODE_ENUM(name, remedy, status) name,
    TM_CODES(TM_CODE_ENUM)
#undef TM_CODE_ENUM
        TM_CODE_COUNT
};

struct tm_error {
    enum tm_code code;
    char text[TM_ERROR_TEXT_MAX]; /* outermost context first; ends in "..." where it did not fit */
};

/* Puts code and words in `e` (if any) and returns -code, so that a failing function ends in one line. A macro, so that
 * static analysis sees that the result is not 0. */
#define tm_error_set(e, code, ...) (tm_error__set((e), (code), __VA_ARGS__), -(int)(code))
void tm_error__set(struct tm_error *e, enum tm_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts "words: " before what `e` says (if any) and returns `rc`, the code in hand. */
int tm_error_wrap(struct tm_error *e, int rc, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* "out of memory", -TM_ENOMEM. */
#define tm_error_nomem(e) tm_error_set((e), TM_ENOMEM, "out of memory")

/* "what: strerror(errno_value)" as -TM_ENOTFOUND for ENOENT, -TM_ENOMEM for ENOMEM, -TM_EFULL for
 * ENOSPC, EDQUOT and EFBIG, else -TM_EIO. */
int tm_error_errno(struct tm_error *e, int errno_value, const char *format, ...) __attribute__((format(printf, 3, 4)));

const char *tm_code__name(enum tm_code code);
const char *tm_code__remedy(enum tm_code code);
int tm_code_exit_status(enum tm_code code);

#endif
