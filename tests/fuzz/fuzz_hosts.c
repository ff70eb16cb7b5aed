/* Lists of hosts: whatever is read can be given to ssh and to a shell. */
#include "fuzz.h"

#include "cloud/host_list.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tm_host hosts[TM_HOSTS_MAX];
    size_t count = 0;
    if (tm_hosts_parse("fuzz", (const char *)data, size, hosts, &count, NULL) != 0) return 0;
    assert(count > 0);
    for (size_t i = 0; i < count; i++) {
        assert(hosts[i].name[0] != '-' && strpbrk(hosts[i].name, " \t\n;|&$`'\"<>()\\") == NULL);
        assert(hosts[i].slots >= 1 && hosts[i].slots <= TM_HOST_SLOTS_MAX);
    }
    return 0;
}
