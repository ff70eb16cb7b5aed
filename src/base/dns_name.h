/* Names as DNS and Kubernetes have them (RFC 1123): letters in lower case, digits and '-'. */
#ifndef TM_BASE_DNS_NAME_H
#define TM_BASE_DNS_NAME_H

#include <stdbool.h>

/* One label, of up to 63 letters, digits and '-' between them: a namespace, a service. */
bool tm_dns_label_is_good(const char *name);
/* Labels with '.' between them, up to 253 characters: a pod, a priority class. */
bool tm_dns_name_is_good(const char *name);

#endif
