/* The files that AWS's own tools keep: ~/.aws/config and ~/.aws/credentials. Sections in brackets, `key = value`,
 * comments with # or ;, indented lines below a key, which belong to it. */
#ifndef TM_WEB_AWS_CONFIG_H
#define TM_WEB_AWS_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

/* The value of a key in the section whose name this is, without space at its ends; borrowed from `text`. False: there
 * is none. A key that stands twice has its last value. */
bool tm_aws_config__find(const char *text, size_t length, const char *section, const char *key, const char **out,
                         size_t *out_length);
/* The same of a key that stands indented below another, which has no value of its own: endpoint_url below `ec2 =` in
 * [services NAME]. */
bool tm_aws_config__find_below(const char *text, size_t length, const char *section, const char *above, const char *key,
                               const char **out, size_t *out_length);
/* Is there such a section? */
bool tm_aws_config__has(const char *text, size_t length, const char *section);

#endif
