#pragma once
// Streams, events and graphs of the host API. Part of emu_runtime.cpp.

#include "rt_api_device.h"

cudaError_t cudaStreamCreate(cudaStream_t* s) {
  *s = new CUstream_st;
  std::lock_guard lock(api().mutex);
  api().streams.push_back(*s);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned) { return cudaStreamCreate(s); }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* s, unsigned, int) { return cudaStreamCreate(s); }
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t s) {
  if (is_default(s)) return set_error(cudaErrorInvalidResourceHandle);
  std::lock_guard lock(api().mutex);
  std::erase(api().streams, s);
  delete s;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
  return capturing(s) ? set_error(cudaErrorStreamCaptureUnsupported) : cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t s) { return cudaStreamSynchronize(s); }
cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t f, void* data) {
  return enqueue(s, make_work([=] { f(data); }));
}

cudaError_t cudaEventCreate(cudaEvent_t* e) {
  *e = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned flags) {
  cudaEventCreate(e);
  (*e)->timing = !(flags & cudaEventDisableTiming);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t e) {
  delete e;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
  if (!e) return set_error(cudaErrorInvalidResourceHandle);
  e->capture = resolve(s)->capture;
  e->time = std::chrono::steady_clock::now();
  e->recorded = !e->capture;
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
  if (!e) return set_error(cudaErrorInvalidResourceHandle);
  return e->capture ? set_error(cudaErrorStreamCaptureUnsupported) : cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t e) { return cudaEventSynchronize(e); }
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  if (!start || !end || !start->recorded || !end->recorded || !start->timing || !end->timing)
    return set_error(cudaErrorInvalidResourceHandle);
  *ms = std::chrono::duration<float, std::milli>(end->time - start->time).count();
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned) {
  if (!e) return set_error(cudaErrorInvalidResourceHandle);
  if (e->capture && !capturing(s)) resolve(s)->capture = e->capture;  // fork: this stream joins the capture
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode) {
  if (is_default(s) && s != cudaStreamPerThread) return set_error(cudaErrorStreamCaptureUnsupported);
  if (capturing(s)) return set_error(cudaErrorStreamCaptureUnsupported);
  resolve(s)->capture = std::make_shared<std::vector<OwnedWork>>();
  resolve(s)->capture_origin = true;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t* graph) {
  *graph = nullptr;
  CUstream_st* stream = resolve(s);
  if (!stream->capture || !stream->capture_origin) return set_error(cudaErrorStreamCaptureUnmatched);
  *graph = new CUgraph_st{stream->capture};
  const WorkList ended = stream->capture;
  stream->capture_origin = false;
  stream->capture = nullptr;
  std::lock_guard lock(api().mutex);
  for (cudaStream_t other : api().streams)
    if (other->capture == ended) other->capture = nullptr;
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t s, cudaStreamCaptureStatus* status) {
  *status = capturing(s) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  if (!graph) return set_error(cudaErrorInvalidValue);
  *exec = new CUgraphExec_st{graph->work};
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags) {
  return cudaGraphInstantiate(exec, graph, flags);
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, cudaGraphNode_t*, char*, size_t) {
  return cudaGraphInstantiate(exec, graph, 0ull);
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s) {
  if (!exec) return set_error(cudaErrorInvalidValue);
  return enqueue(s, make_work([work = exec->work] {
    for (const OwnedWork& step : *work) step->run();
  }));
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t*, size_t* count) {
  *count = graph->work->size();
  return cudaSuccess;
}
