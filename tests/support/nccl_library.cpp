/* A libnccl.so.2 of one rank for CuPy's own binding: what it is told is what CuPy made of its arguments.
   Streams, communicators and device memory are the host's. */
#include <stddef.h>
#include <string.h>

extern "C" {

typedef struct { char internal[128]; } Id;
static Id made;
static int communicator;

int ncclGetUniqueId(Id *id) {
    for (int i = 0; i < 128; i++)
        made.internal[i] = (char)(i * 37 + 128);
    *id = made;
    return 0;
}

int ncclCommInitRank(void **one, int size, Id id, int rank) {
    *one = &communicator;
    return memcmp(&id, &made, 128) || size != 1 || rank ? 4 : 0;
}

int ncclCommInitRankConfig(void **one, int size, Id id, int rank, void *config) {
    return ncclCommInitRank(one, size, id, rank);
}

/* Of ncclUint8 (1) alone. */
int ncclBroadcast(const void *from, void *to, size_t count, int type, int root, void *one, void *stream) {
    if (type != 1 || root || one != &communicator || !stream)
        return 4;
    memmove(to, from, count);
    return 0;
}

int ncclGroupStart(void) { return 0; }
int ncclGroupEnd(void) { return 0; }
int ncclCommDestroy(void *one) { return 0; }
const char *ncclGetErrorString(int status) { return "what the library of the tests refuses"; }

#define UNUSED(name) int name(void) { return 5; }
UNUSED(ncclAllGather) UNUSED(ncclAllReduce) UNUSED(ncclBcast) UNUSED(ncclCommAbort) UNUSED(ncclCommCount)
UNUSED(ncclCommCuDevice) UNUSED(ncclCommGetAsyncError) UNUSED(ncclCommInitAll) UNUSED(ncclCommSplit)
UNUSED(ncclCommUserRank) UNUSED(ncclGetVersion) UNUSED(ncclRecv) UNUSED(ncclReduce) UNUSED(ncclReduceScatter)
UNUSED(ncclSend)
}
