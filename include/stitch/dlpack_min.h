/* The DLPack DLTensor layout. Debian's libdlpack-dev supplies <dlpack/dlpack.h> where it is installed; a program
 * folder must also build on a machine without it, so the few structs the ABI needs are declared here, layout-compatible
 * with the DLPack specification (https://dmlc.github.io/dlpack/latest/c_api.html). */
#ifndef STITCH_DLPACK_MIN_H
#define STITCH_DLPACK_MIN_H

#if defined(__has_include)
#if __has_include(<dlpack/dlpack.h>)
#include <dlpack/dlpack.h>
#define STITCH_HAVE_DLPACK 1
#endif
#endif

#ifndef STITCH_HAVE_DLPACK
#include <stdint.h>
typedef enum { kDLCPU = 1, kDLCUDA = 2 } DLDeviceType;
typedef struct { DLDeviceType device_type; int32_t device_id; } DLDevice;
typedef enum { kDLInt = 0, kDLUInt = 1, kDLFloat = 2, kDLBfloat = 4, kDLBool = 6 } DLDataTypeCode;
typedef struct { uint8_t code; uint8_t bits; uint16_t lanes; } DLDataType;
typedef struct {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
} DLTensor;
#endif

/* dlpack 0.6 has no kDLBool; its value is fixed by the specification. */
#define STITCH_DL_BOOL 6
#endif
