"""Owners of kernels by their names, as a trace spells them."""

import pytest

from stitchcuda.device_share import owner_of


@pytest.mark.parametrize("kernel,owner", [
    ("void program::linear_relu_kernel(float const*, float*)", "own"),
    ("void stitch::softmax_rows<float, 4>(stitch::RowParams)", "own"),
    ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1> >(int)", "framework"),
    ("triton_poi_fused_relu_0", "framework"),
    ("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x128_8x4_tn_align1>(cutlass_80_simt::Params)", "vendor"),
    ("nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNT", "vendor"),
    ("sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16", "vendor"),
    ("void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(x)", "vendor"),
    ("Memcpy DtoD (Device -> Device)", "copies"), ("Memset (Device)", "copies"), ("mystery", "unknown"),
])
def test_owner(kernel, owner):
    assert owner_of(kernel) == owner
