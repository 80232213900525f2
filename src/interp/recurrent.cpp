// lstm, gru, rnn: layers and directions one after the other, products over the whole batch.
#include <cmath>

#include "interp/gemm.h"
#include "interp/rules.h"
#include "interp/strided.h"

namespace stitch::interp {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// One layer in one direction.
struct Cell {
  int64_t gates, input, hidden;
  const double *w_ih, *w_hh, *b_ih, *b_hh;  // biases may be null
};

// New state of one batch entry from its gate sums: `a` from the input, `b` from the state (biases included).
using Update = void (*)(int64_t hidden, const double* a, const double* b, double* h, double* c);

void lstm_update(int64_t n, const double* a, const double* b, double* h, double* c) {
  for (int64_t j = 0; j < n; ++j) {  // gates: input, forget, cell, output
    const double in = sigmoid(a[j] + b[j]), forget = sigmoid(a[n + j] + b[n + j]);
    const double cell = std::tanh(a[2 * n + j] + b[2 * n + j]), out = sigmoid(a[3 * n + j] + b[3 * n + j]);
    c[j] = forget * c[j] + in * cell;
    h[j] = out * std::tanh(c[j]);
  }
}
void gru_update(int64_t n, const double* a, const double* b, double* h, double*) {
  for (int64_t j = 0; j < n; ++j) {  // gates: reset, update, new
    const double reset = sigmoid(a[j] + b[j]), update = sigmoid(a[n + j] + b[n + j]);
    const double fresh = std::tanh(a[2 * n + j] + reset * b[2 * n + j]);
    h[j] = (1 - update) * fresh + update * h[j];
  }
}
void tanh_update(int64_t n, const double* a, const double* b, double* h, double*) {
  for (int64_t j = 0; j < n; ++j) h[j] = std::tanh(a[j] + b[j]);
}
void relu_update(int64_t n, const double* a, const double* b, double* h, double*) {
  for (int64_t j = 0; j < n; ++j) {
    const double s = a[j] + b[j];
    h[j] = s < 0 ? 0 : s;  // NaN stays
  }
}

// rows of w times x plus bias: (rows x in) times (in x gates).
void project(int64_t rows, int64_t in, int64_t out, const double* x, const double* w, const double* bias, double* y) {
  const int64_t zero = 0;
  gemm_batched(1, rows, out, in, {x, in, 1}, {w, 1, in}, {&zero, &zero}, y);
  if (bias)
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t j = 0; j < out; ++j) y[r * out + j] += bias[j];
}

struct Sequence {
  int64_t steps, batch;
};

// x is (steps, batch, input); y gets `hidden` columns of rows `y_row` wide. h and c (batch x hidden) end in the last state.
void run_cell(const Cell& cell, Update update, Sequence s, bool backward, const double* x, double* y, int64_t y_row, double* h, double* c) {
  const int64_t width = cell.gates * cell.hidden;
  std::vector<double> from_input(static_cast<size_t>(s.steps * s.batch * width)), from_state(static_cast<size_t>(s.batch * width));
  project(s.steps * s.batch, cell.input, width, x, cell.w_ih, cell.b_ih, from_input.data());
  for (int64_t t = 0; t < s.steps; ++t) {
    const int64_t step = backward ? s.steps - 1 - t : t;
    project(s.batch, cell.hidden, width, h, cell.w_hh, cell.b_hh, from_state.data());
    for (int64_t b = 0; b < s.batch; ++b) {
      double* state = h + b * cell.hidden;
      update(cell.hidden, from_input.data() + (step * s.batch + b) * width, from_state.data() + b * width, state, c ? c + b * cell.hidden : nullptr);
      std::copy_n(state, cell.hidden, y + (step * s.batch + b) * y_row);
    }
  }
}

// (batch, steps, n) to (steps, batch, n) and back.
std::vector<double> swap_first_two(const std::vector<double>& x, int64_t d0, int64_t d1, int64_t n) {
  std::vector<double> out(x.size());
  copy_dense({{d1, d0, n}, {n, d1 * n, 1}, 0}, x.data(), out.data());
  return out;
}

Result<Values> recurrent(const Call& c) {
  const Value& x = c.in("x");
  const bool lstm = c.is("lstm"), first = c.node.boolean("batch_first"), biases = c.node.boolean("has_biases");
  const int64_t directions = c.node.boolean("bidirectional") ? 2 : 1, layers = c.node.integer("num_layers");
  const Sequence s{x.type.shape[first ? 1 : 0], x.type.shape[first ? 0 : 1]};
  const Update update = lstm ? lstm_update : c.is("gru") ? gru_update : c.node.text("nonlinearity") == "relu" ? relu_update : tanh_update;
  const auto params = c.list("params");
  const size_t per_cell = biases ? 4 : 2;
  Values out = one(c.result());
  out.push_back(c.in("h0"));
  if (lstm) out.push_back(c.in("c0"));
  const int64_t hidden = out[1].type.shape[2], state = s.batch * hidden;
  std::vector<double> layer_input = first ? swap_first_two(x.f, s.batch, s.steps, x.type.shape[2]) : x.f;
  int64_t input = x.type.shape[2];
  for (int64_t layer = 0; layer < layers; ++layer) {
    std::vector<double> y(static_cast<size_t>(s.steps * state * directions));
    for (int64_t d = 0; d < directions; ++d) {
      const int64_t index = layer * directions + d;
      const Value* const* p = params.data() + static_cast<size_t>(index) * per_cell;
      const Cell cell{lstm ? 4 : c.is("gru") ? 3 : 1, input, hidden, p[0]->f.data(), p[1]->f.data(), biases ? p[2]->f.data() : nullptr, biases ? p[3]->f.data() : nullptr};
      run_cell(cell, update, s, d == 1, layer_input.data(), y.data() + d * hidden, hidden * directions, out[1].f.data() + index * state,
               lstm ? out[2].f.data() + index * state : nullptr);
    }
    layer_input = std::move(y);
    input = hidden * directions;
  }
  out[0].f = first ? swap_first_two(layer_input, s.steps, s.batch, input) : std::move(layer_input);
  return out;
}

constexpr Entry kRules[] = {{"lstm", recurrent}, {"gru", recurrent}, {"rnn", recurrent}};

}  // namespace

std::span<const Entry> families::recurrent() { return kRules; }

}  // namespace stitch::interp
