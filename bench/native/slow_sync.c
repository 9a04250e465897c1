// slow_sync - makes fsync and fdatasync take longer, as on a disk that is slower than this machine's.
//
// Every process that loads it sleeps for $SLOW_SYNC_US microseconds after each successful call.
// Build: cc -O2 -shared -fPIC -o slow_sync.so slow_sync.c
// Use:   LD_PRELOAD=./slow_sync.so SLOW_SYNC_US=4000 postgres ...
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

typedef int (*sync_call)(int);

static int slow_call(const char *name, sync_call *call, int fd) {
    if (!*call) *call = (sync_call)dlsym(RTLD_NEXT, name);
    int result = (*call)(fd);
    const char *microseconds = getenv("SLOW_SYNC_US");
    if (result == 0 && microseconds) {
        long us = atol(microseconds);
        struct timespec pause = {us / 1000000, us % 1000000 * 1000};
        nanosleep(&pause, NULL);
    }
    return result;
}

int fsync(int fd) {
    static sync_call call;
    return slow_call("fsync", &call, fd);
}

int fdatasync(int fd) {
    static sync_call call;
    return slow_call("fdatasync", &call, fd);
}
