// Direct convolution against the definition.
#include "check.h"
#include "convolution.cuh"
#include "reference.h"

namespace convolution_test {

// The run-time description as the compile-time one of case I.
template <int I>
struct Shape {
  static constexpr stitch::ConvolutionShape make() {
    constexpr int b[8][5] = {{2, 3, 4, 1, 0}, {1, 4, 6, 2, 0}, {1, 4, 4, 4, 0}, {1, 3, 3, 3, 0}, {2, 3, 2, 1, 0}, {1, 2, 2, 1, 0}, {1, 3, 4, 1, 1}, {1, 4, 6, 2, 1}};
    constexpr int in[8][3] = {{1, 7, 9}, {1, 11, 13}, {1, 8, 10}, {1, 8, 11}, {1, 1, 20}, {4, 5, 6}, {1, 5, 4}, {1, 5, 4}};
    constexpr int kernel[8][3] = {{1, 3, 3}, {1, 3, 2}, {1, 3, 3}, {1, 3, 3}, {1, 1, 5}, {3, 2, 3}, {1, 3, 3}, {1, 2, 3}};
    constexpr int out[8][3] = {{1, 7, 9}, {1, 5, 11}, {1, 8, 10}, {1, 4, 6}, {1, 1, 9}, {4, 4, 6}, {1, 10, 8}, {1, 7, 8}};
    constexpr int stride[8][3] = {{1, 1, 1}, {1, 2, 1}, {1, 1, 1}, {1, 2, 2}, {1, 1, 2}, {1, 1, 1}, {1, 2, 2}, {1, 1, 1}};
    constexpr int padding[8][3] = {{0, 1, 1}, {0, 1, 0}, {0, 1, 1}, {0, 1, 1}, {0, 0, 1}, {1, 0, 1}, {0, 1, 1}, {0, 0, 0}};
    constexpr int dilation[8][3] = {{1, 1, 1}, {1, 1, 2}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 2, 2}};
    return {b[I][0], b[I][1], b[I][2], b[I][3], {in[I][0], in[I][1], in[I][2]}, {kernel[I][0], kernel[I][1], kernel[I][2]},
            {out[I][0], out[I][1], out[I][2]}, {stride[I][0], stride[I][1], stride[I][2]}, {padding[I][0], padding[I][1], padding[I][2]},
            {dilation[I][0], dilation[I][1], dilation[I][2]}, b[I][4] != 0};
  }
  static constexpr stitch::ConvolutionShape value = make();
};

template <int I, class T>
void one(bool with_bias) {
  const auto [what, shape] = convolution_cases()[I];
  const ConvolutionCase reference(shape);
  const Doubles x = random_values<T>(reference.x_size, 1), w = random_values<T>(reference.w_size, 2), bias = random_values<T>(shape.out_channels, 3);
  Buffer<T> dx(x), dw(w), dbias(bias), dy(reference.y_size);
  require(stitch::convolution_direct<Shape<I>>(dx.get(), dw.get(), with_bias ? dbias.get() : static_cast<T*>(nullptr), stitch::Store{dy.get()}, nullptr), what);
  expect_close("direct convolution " + what, dy.read(), reference.run(x, w, with_bias ? bias : Doubles{}), tolerance<T>());
}

void run() {
  one<0, float>(true);
  one<1, float>(false);
  one<2, float>(true);
  one<3, double>(false);
  one<4, float>(true);
  one<5, float>(false);
  one<6, float>(true);
  one<7, __half>(false);
}

}  // namespace convolution_test
