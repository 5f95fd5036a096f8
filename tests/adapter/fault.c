/* A layer between a reader and its file that fails as a disk does: preloaded, told by FAULT what to do with the block
   at offset FAULT_OFFSET: "eio", "short" (half of it), "late" (after FAULT_SECONDS). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

static const char *fault(off_t offset) {
    const char *what = getenv("FAULT"), *where = getenv("FAULT_OFFSET");
    if (what == NULL || where == NULL || offset != atoll(where)) return "";
    if (strcmp(what, "late") == 0) {
        double seconds = atof(getenv("FAULT_SECONDS"));
        struct timespec rest = {(time_t)seconds, (long)((seconds - (time_t)seconds) * 1e9)};
        nanosleep(&rest, NULL);
    }
    return what;
}

static ssize_t spoilt(const char *what, ssize_t got) {
    if (strcmp(what, "eio") == 0) {
        errno = EIO;
        return -1;
    }
    return strcmp(what, "short") == 0 ? 100 : got;
}

ssize_t pread(int fd, void *buffer, size_t size, off_t offset) {
    ssize_t (*real)(int, void *, size_t, off_t) = dlsym(RTLD_NEXT, "pread");
    return spoilt(fault(offset), real(fd, buffer, size, offset));
}

ssize_t pread64(int fd, void *buffer, size_t size, off_t offset) { return pread(fd, buffer, size, offset); }

ssize_t preadv2(int fd, const struct iovec *parts, int count, off_t offset, int flags) {
    ssize_t (*real)(int, const struct iovec *, int, off_t, int) = dlsym(RTLD_NEXT, "preadv2");
    return spoilt(fault(offset), real(fd, parts, count, offset, flags));
}

ssize_t preadv64v2(int fd, const struct iovec *parts, int count, off_t offset, int flags) {
    return preadv2(fd, parts, count, offset, flags);
}

ssize_t preadv(int fd, const struct iovec *parts, int count, off_t offset) {
    return preadv2(fd, parts, count, offset, 0);
}

ssize_t preadv64(int fd, const struct iovec *parts, int count, off_t offset) {
    return preadv2(fd, parts, count, offset, 0);
}
