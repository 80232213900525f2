#include "hw/device.h"

#include <array>

namespace stitch::hw {
namespace {

// H200: copy bandwidth, bf16, TF32 and fp32 library GEMM rates were measured (device-to-device copy of 8.6 GB, products of
// 8192^3 and 4096^3 on random data); the other rates are NVIDIA's data sheet. The fp32 vector rate is the data sheet's because a
// floor has to bound every possible program, not the library's.
Device h200() {
  Device d;
  d.name = "NVIDIA H200";
  d.arch = "sm_90";
  d.sm_count = 132;
  d.dram_bytes_per_s = 4.3e12;
  d.l2_bytes = 60e6;
  d.shared_bytes_per_block = 227 * 1024;
  d.fp32_flops = 67e12;
  d.tf32_flops = 400e12;
  d.fp16_flops = 800e12;
  d.bf16_flops = 800e12;
  d.fp64_flops = 67e12;
  d.special_per_s = 132 * 16 * 1.98e9;
  d.launch_seconds = 2.0e-6;
  d.measured = "copy, bf16 and TF32 product measured on an H200; other rates from the data sheet";
  return d;
}

// RTX PRO 6000 (Blackwell, workstation), data sheet only.
Device rtx_pro_6000() {
  Device d;
  d.name = "NVIDIA RTX PRO 6000";
  d.arch = "sm_120";
  d.sm_count = 188;
  d.dram_bytes_per_s = 1.79e12;
  d.l2_bytes = 128e6;
  d.shared_bytes_per_block = 99 * 1024;
  d.fp32_flops = 125e12;
  d.tf32_flops = 250e12;
  d.fp16_flops = 500e12;
  d.bf16_flops = 500e12;
  d.fp64_flops = 1.95e12;
  d.special_per_s = 188 * 16 * 2.6e9;
  d.launch_seconds = 2.0e-6;
  d.measured = "data sheet";
  return d;
}

struct ClassName {
  PrecisionClass value;
  std::string_view name;
};
constexpr std::array kClassNames{
    ClassName{PrecisionClass::fp32, "fp32"}, ClassName{PrecisionClass::default_flags, "default"},
    ClassName{PrecisionClass::tf32, "tf32"}, ClassName{PrecisionClass::bf16, "bf16"},
    ClassName{PrecisionClass::fp16, "fp16"}};

}  // namespace

Result<Device> find_device(std::string_view name) {
  if (name == "h200") return h200();
  if (name == "rtx_pro_6000") return rtx_pro_6000();
  return fail(ErrorKind::bad_input, "There is no device description named \"{}\"; known ones are h200 and rtx_pro_6000.",
              name);
}

Result<PrecisionClass> precision_class_from_name(std::string_view name) {
  for (const ClassName& c : kClassNames)
    if (c.name == name) return c.value;
  return fail(ErrorKind::bad_input, "\"{}\" is not a precision class; use fp32, default, tf32, bf16 or fp16.", name);
}

std::string_view name_of(PrecisionClass c) {
  for (const ClassName& entry : kClassNames)
    if (entry.value == c) return entry.name;
  return "default";
}

}  // namespace stitch::hw
