/* A network cable with a length: what goes in at one end comes out at the other after a while, and some of it never.
 * For tests on kernels without sch_netem. Each end is a TAP device in a network namespace, and goes with this program.
 *
 * Use: test-cable NAMESPACE DEVICE NAMESPACE DEVICE DELAY_MS LOSS_PERCENT
 * "ready" is printed once both ends are there. A frame waits in the ring of its direction until it is due; where that
 * is full, as behind a slow link, it is lost. */
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { FRAME_MAX = 2048, RING = 4096 };

struct frame {
    int64_t due_us;
    size_t length;
    unsigned char data[FRAME_MAX];
};

/* Frames on their way to one end, in the order in which they entered: all take as long. */
struct direction {
    int from, to;
    struct frame *ring;
    size_t first, count;
};

static void die(const char *what)
{
    (void)fprintf(stderr, "test-cable: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int64_t now_us(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static int open_end(const char *space, const char *device)
{
    char path[300];
    struct ifreq request = {0};
    (void)snprintf(path, sizeof path, "/var/run/netns/%.200s", space);
    int handle = open(path, O_RDONLY | O_CLOEXEC);
    if (handle < 0 || setns(handle, CLONE_NEWNET) != 0) die(path);
    (void)close(handle);
    int end = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (end < 0) die("/dev/net/tun");
    request.ifr_flags = IFF_TAP | IFF_NO_PI;
    (void)snprintf(request.ifr_name, sizeof request.ifr_name, "%s", device);
    if (ioctl(end, TUNSETIFF, &request) != 0) die(device);
    return end;
}

static bool is_lost(double percent)
{
    return (double)random() / (double)RAND_MAX * 100 < percent;
}

static void take_in(struct direction *d, int64_t delay_us, double loss)
{
    for (int i = 0; i < 64; i++) {
        unsigned char data[FRAME_MAX];
        ssize_t got = read(d->from, data, sizeof data);
        if (got <= 0) return; /* nothing, or the device is down */
        if (is_lost(loss) || d->count == RING) continue;
        struct frame *frame = &d->ring[(d->first + d->count++) % RING];
        frame->due_us = now_us() + delay_us;
        frame->length = (size_t)got;
        memcpy(frame->data, data, (size_t)got);
    }
}

static void let_out(struct direction *d)
{
    for (; d->count > 0 && d->ring[d->first].due_us <= now_us(); d->count--) {
        ssize_t put = write(d->to, d->ring[d->first].data, d->ring[d->first].length);
        (void)put; /* where the device is down, the frame is lost */
        d->first = (d->first + 1) % RING;
    }
}

int main(int argc, char **argv)
{
    if (argc != 7) return 2;
    int ends[2];
    ends[0] = open_end(argv[1], argv[2]);
    ends[1] = open_end(argv[3], argv[4]);
    int64_t delay_us = (int64_t)(strtod(argv[5], NULL) * 1000);
    double loss = strtod(argv[6], NULL);
    struct direction ways[2] = {{.from = ends[0], .to = ends[1]}, {.from = ends[1], .to = ends[0]}};
    for (int i = 0; i < 2; i++)
        if ((ways[i].ring = calloc(RING, sizeof *ways[i].ring)) == NULL) die("memory");
    (void)puts("ready");
    (void)fflush(stdout);
    for (;;) {
        struct pollfd waiting[2] = {{.fd = ends[0], .events = POLLIN}, {.fd = ends[1], .events = POLLIN}};
        int64_t wait_us = 1000000;
        for (int i = 0; i < 2; i++)
            if (ways[i].count > 0 && ways[i].ring[ways[i].first].due_us - now_us() < wait_us)
                wait_us = ways[i].ring[ways[i].first].due_us - now_us();
        struct timespec left = {wait_us > 0 ? wait_us / 1000000 : 0, wait_us > 0 ? wait_us % 1000000 * 1000 : 0};
        (void)ppoll(waiting, 2, &left, NULL);
        for (int i = 0; i < 2; i++) {
            take_in(&ways[i], delay_us, loss);
            let_out(&ways[i]);
        }
    }
}
