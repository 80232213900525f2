// Recurrent layers, and the products with few vectors, against loops in double.
#include "check.h"
#include "gemv.cuh"
#include "recurrent.cuh"

namespace recurrent_test {

using stitch::Cell;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

struct Result {
  Doubles y, h, c;
};

template <class S>
Result reference(Doubles x, const Doubles& h0, const Doubles& c0, const std::vector<Doubles>& params) {
  constexpr stitch::RecurrentShape s = S::value;
  const int H = s.hidden, G = s.gates(), D = s.directions, per = s.biases ? 4 : 2;
  Result r{{}, h0, c0};
  int width = s.input;
  for (int layer = 0; layer < s.layers; ++layer) {
    Doubles y(s.rows() * D * H);
    for (int d = 0; d < D; ++d)
      for (int b = 0; b < s.batch; ++b) {
        const Doubles* const p = params.data() + (layer * D + d) * per;
        double* const h = r.h.data() + ((layer * D + d) * s.batch + b) * H;
        double* const c = r.c.data() + ((layer * D + d) * s.batch + b) * H;
        for (int step = 0; step < s.steps; ++step) {
          const int t = d == 0 ? step : s.steps - 1 - step, row = s.batch_first ? b * s.steps + t : t * s.batch + b;
          Doubles in(G * H), hid(G * H), next(H);
          for (int g = 0; g < G * H; ++g) {
            in[g] = s.biases ? p[2][g] : 0;
            hid[g] = s.biases ? p[3][g] : 0;
            for (int k = 0; k < width; ++k) in[g] += p[0][g * width + k] * x[row * width + k];
            for (int k = 0; k < H; ++k) hid[g] += p[1][g * H + k] * h[k];
          }
          for (int j = 0; j < H; ++j) {
            const auto both = [&](int g) { return in[g * H + j] + hid[g * H + j]; };
            if (s.cell == Cell::lstm) {
              c[j] = sigmoid(both(1)) * c[j] + sigmoid(both(0)) * std::tanh(both(2));
              next[j] = sigmoid(both(3)) * std::tanh(c[j]);
            } else if (s.cell == Cell::gru) {
              const double n = std::tanh(in[2 * H + j] + sigmoid(both(0)) * hid[2 * H + j]);
              next[j] = (1 - sigmoid(both(1))) * n + sigmoid(both(1)) * h[j];
            } else {
              next[j] = s.cell == Cell::tanh ? std::tanh(both(0)) : std::max(0.0, both(0));
            }
          }
          for (int j = 0; j < H; ++j) y[(row * D + d) * H + j] = h[j] = next[j];
        }
      }
    x = y;
    width = D * H;
  }
  r.y = x;
  return r;
}

template <class S, class T>
void one(const std::string& what, stitch::Element element) {
  constexpr stitch::RecurrentShape s = S::value;
  stitch::Vendor vendor;
  const Doubles x = random_values<T>(s.rows() * s.input, 1), h0 = random_values<T>(s.layers * s.state(), 2), c0 = random_values<T>(s.layers * s.state(), 3);
  std::vector<Doubles> params;
  std::vector<std::unique_ptr<Buffer<T>>> buffers;
  std::vector<const T*> pointers;
  for (int layer = 0; layer < s.layers; ++layer)
    for (int d = 0; d < s.directions; ++d)
      for (int k = 0; k < (s.biases ? 4 : 2); ++k) {
        const int64_t n = s.gates() * s.hidden, width = k > 1 ? 1 : k == 1 ? s.hidden : layer == 0 ? s.input : s.hidden * s.directions;
        params.push_back(random_values<T>(n * width, 10 + static_cast<unsigned>(params.size()), -0.5, 0.5));
        buffers.push_back(std::make_unique<Buffer<T>>(params.back()));
        pointers.push_back(buffers.back()->get());
      }
  Buffer<T> dx(x), dh(h0), dc(c0), dy(s.rows() * s.directions * s.hidden), dhn(h0.size()), dcn(h0.size());
  Buffer<char> scratch(s.scratch_bytes(sizeof(T), sizeof(stitch::Compute<T>)));
  const bool lstm = s.cell == Cell::lstm;
  require(stitch::recurrent<S>(dx.get(), dh.get(), lstm ? dc.get() : nullptr, pointers.data(), dy.get(), dhn.get(), lstm ? dcn.get() : nullptr, element, false,
                               scratch, vendor, nullptr),
          what);
  const Result want = reference<S>(x, h0, c0, params);
  expect_close(what, dy.read(), want.y, 2 * tolerance<T>());
  expect_close("last h of " + what, dhn.read(), want.h, 2 * tolerance<T>());
  if (lstm) expect_close("last c of " + what, dcn.read(), want.c, 2 * tolerance<T>());
}
struct Lstm { static constexpr stitch::RecurrentShape value{Cell::lstm, 4, 10, 6, 12, 2, 2, true, true}; };
struct LstmOne { static constexpr stitch::RecurrentShape value{Cell::lstm, 3, 1, 5, 7, 1, 1, false, true}; };
struct Gru { static constexpr stitch::RecurrentShape value{Cell::gru, 4, 3, 5, 9, 1, 3, false, true}; };
struct Tanh { static constexpr stitch::RecurrentShape value{Cell::tanh, 5, 2, 4, 8, 2, 1, true, false}; };
struct Relu { static constexpr stitch::RecurrentShape value{Cell::relu, 3, 9, 4, 40, 1, 1, false, true}; };

template <class S, class T>
void vectors(const std::string& what, bool with_bias) {
  constexpr stitch::GemvShape s = S::value;
  const Doubles m = random_values<T>(s.rows * s.ld, 1), v = random_values<T>(s.columns * s.vector_ld, 2), bias = random_values<T>(std::max<int64_t>(s.rows, s.columns), 3);
  Doubles want(s.rows * s.columns);
  for (int64_t r = 0; r < s.rows; ++r)
    for (int c = 0; c < s.columns; ++c) {
      double sum = 0;
      for (int64_t k = 0; k < s.k; ++k) sum += m[r * s.ld + k] * v[c * s.vector_ld + k];
      want[r * s.row_stride + c * s.column_stride] = 0.5 * sum + (with_bias ? bias[s.bias_per_row ? r : c] : 0);
    }
  Buffer<T> dm(m), dv(v), db(bias), out(want.size());
  require(stitch::gemv<S>(dm.get(), dv.get(), with_bias ? db.get() : static_cast<T*>(nullptr), 0.5, stitch::Store{out.get()}, nullptr), what);
  expect_close(what, out.read(), want, tolerance<T>());
}
struct Linear { static constexpr stitch::GemvShape value{100, 96, 96, 96, 1, 100, 3, true}; };
struct Rows { static constexpr stitch::GemvShape value{5, 5001, 5003, 5001, 1, 1, 1, false}; };
struct Columns { static constexpr stitch::GemvShape value{70, 1024, 1024, 1032, 8, 1, 8, false}; };

void run() {
  one<Lstm, float>("lstm, two layers, both directions", stitch::Element::f32);
  one<LstmOne, double>("lstm of one, f64", stitch::Element::f64);
  one<Gru, float>("gru, three layers", stitch::Element::f32);
  one<Tanh, __half>("rnn tanh f16", stitch::Element::f16);
  one<Relu, float>("rnn relu", stitch::Element::f32);
  vectors<Linear, float>("three vectors", true);
  vectors<Rows, float>("long rows", false);
  vectors<Columns, __half>("eight vectors f16", true);
}

}  // namespace recurrent_test
