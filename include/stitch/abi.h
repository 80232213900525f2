/* The candidate ABI: what a stitched program.so exports. Plain C, no torch headers; depends on CUDA libraries only.
 *
 * Tensors are DLPack DLTensor, contiguous row-major (strides may be NULL), on the device the program was built for
 * (kDLCUDA, or kDLCPU for the host target). The caller owns every tensor and the workspace; pointers passed to
 * stitch_create (weights) and stitch_set_workspace must stay valid until stitch_destroy. Functions return 0 on
 * success; on failure stitch_last_error() gives one sentence. All work is enqueued on the given stream or joined back
 * to it. A program is used by one thread at a time.
 */
#ifndef STITCH_ABI_H
#define STITCH_ABI_H

#include <stddef.h>
#include <stdint.h>

#include "stitch/dlpack_min.h"

#ifdef __cplusplus
extern "C" {
#endif

#define STITCH_ABI_VERSION 1
#define STITCH_EXPORT __attribute__((visibility("default")))

typedef struct stitch_program stitch_program;

STITCH_EXPORT int stitch_abi_version(void);

/* JSON, static storage: {"name", "target": "cuda"|"host", "arch", "precision", "inputs": [{"name","dtype","shape"}],
 * "weights": [...], "outputs": [{"name","dtype","shape","mutates"}], "tasks": [{"id","name","nodes"}],
 * "workspace_bytes"}. */
STITCH_EXPORT const char* stitch_manifest(void);

/* Prepares a program: weight-only work (prepacking, constant folding) happens here and is timed apart.
 * Returns NULL on failure; stitch_last_error(NULL) then gives the reason. */
STITCH_EXPORT stitch_program* stitch_create(const DLTensor* const* weights, int32_t weight_count, void* stream);

/* Scratch memory the caller must provide before the first run; 256-byte aligned. */
STITCH_EXPORT size_t stitch_workspace_bytes(const stitch_program*);
STITCH_EXPORT int stitch_set_workspace(stitch_program*, void* memory, size_t bytes);

/* Runs the whole program. `outputs` holds one tensor per graph output, mutated buffers included. */
STITCH_EXPORT int stitch_run(stitch_program*, const DLTensor* const* inputs, const DLTensor* const* outputs, void* stream);

/* Runs one task (index into the manifest's "tasks") on the state that a preceding stitch_run or the preceding tasks
 * left in the workspace: for timing and profiling a task alone. */
STITCH_EXPORT int stitch_run_task(stitch_program*, int32_t task, const DLTensor* const* inputs,
                                  const DLTensor* const* outputs, void* stream);

STITCH_EXPORT const char* stitch_last_error(const stitch_program*);
STITCH_EXPORT void stitch_destroy(stitch_program*);

#ifdef __cplusplus
}
#endif
#endif
