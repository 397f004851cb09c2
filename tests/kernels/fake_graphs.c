/* Stands in for the part of libcuda that knows captured graphs: one object tied to each, let go on a thread of its own. */
#include <pthread.h>
#include <stdlib.h>

typedef void (*Destroy)(void *);
static struct { void *data; Destroy destroy; } made, tied[64];
static int mode = 0; /* of this thread: 0 global, 2 relaxed */

int cuInit(unsigned flags) { return 0; }
int cuGetErrorName(int code, const char **text) { *text = "FAKE"; return 0; }
int cuGetErrorString(int code, const char **text) { *text = "a stand-in's text"; return 0; }

int cuStreamGetCaptureInfo_v2(unsigned long long stream, int *status, unsigned long long *id, unsigned long long *graph,
                              void *dependencies, void *count) {
  if (getenv("FAKE_NO_CAPTURE_INFO")) return 801;
  *status = 1;
  *id = *graph = stream; /* a stream captures one graph here */
  return 0;
}
int cuUserObjectCreate(void **object, void *data, Destroy destroy, unsigned references, unsigned flags) {
  if (flags != 1 || references != 1) return 1;
  made.data = data;
  made.destroy = destroy;
  *object = &made;
  return 0;
}
int cuGraphRetainUserObject(unsigned long long graph, void *object, unsigned count, unsigned flags) {
  if (object != &made || count != 1 || flags != 1) return 1;
  tied[graph].data = made.data;
  tied[graph].destroy = made.destroy;
  return 0;
}
int cuThreadExchangeStreamCaptureMode(int *given) { int before = mode; mode = *given; *given = before; return 0; }
int fake_mode(void) { return mode; }

static void *let_go(void *which) {
  tied[(long)which].destroy(tied[(long)which].data);
  return NULL;
}
void fake_graph_goes(long graph) {
  pthread_t thread;
  pthread_create(&thread, NULL, let_go, (void *)graph);
  pthread_join(thread, NULL);
}
