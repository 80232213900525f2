#include "ir/bundle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <functional>

#include "base/files.h"
#include "base/json_util.h"
#include "base/terminal.h"
#include "ir/builder.h"
#include "ir/generate.h"
#include "ir/safetensors.h"

namespace stitch::ir {
namespace {

using testing::HasSubstr;

struct Program {
  Bundle bundle;
  std::vector<Tensor> weights;
  std::vector<Case> cases;
};

Program sample() {
  GraphBuilder b;
  const auto x = b.input("x", {DType::f32, {2, 3}}), i = b.input("i", {DType::i64, {2}});
  const auto w = b.weight("fc.weight", {DType::f32, {3, 3}}), mask = b.weight("mask", {DType::f32, {3}});
  const auto y = b.op("add", {{"x", b.op("linear", {{"x", x}, {"weight", w}})}, {"y", mask}});
  b.output("output0", b.op("index", {{"x", y}, {"indices", ValueList{i}}}));
  b.mutates("mask", mask);
  Program p;
  p.bundle.name = "sample";
  p.bundle.mode = "eval";
  p.bundle.graph = b.graph();
  p.bundle.inputs = {{"x", {DType::f32, {2, 3}}, {}}, {"i", {DType::i64, {2}}, {}}};
  p.bundle.weights = {{"fc.weight", {DType::f32, {3, 3}}, {}, true}, {"mask", {DType::f32, {3}}, {}, false}};
  p.bundle.origin = {"model.py", std::string(64, 'a'), "kernelbench", "2.11.0", 42};
  p.bundle.precision.allow_tf32_matmul = true;
  p.bundle.input_spec = Json::parse(R"({"tuple":[{"tensor":0},{"dict":{"index":{"tensor":1},"scale":{"value":2.5}}}],"kwargs":{"flag":{"value":true},"again":{"tensor":1}}})");
  p.bundle.output_spec = Json::parse(R"({"list":[{"tensor":0},{"value":null}]})");
  p.weights = {make_tensor("fc.weight", {DType::f32, {3, 3}}), make_tensor("mask", {DType::f32, {3}})};
  set(p.weights[0], 4, 0.5);
  set(p.weights[1], 1, -INFINITY);  // an additive mask: allowed, as it is no parameter
  Case c{"000", {make_tensor("x", {DType::f32, {2, 3}}), make_tensor("i", {DType::i64, {2}})}, {make_tensor("", {DType::f32, {2, 3}}), make_tensor("", {DType::f32, {3}})}};
  set(c.inputs[0], 5, 7);
  p.cases = {c, c};
  p.cases[1].name = "only_inputs-1";
  p.cases[1].expected.clear();
  return p;
}

class BundleTest : public testing::Test {
 protected:
  fs::path path() const { return folder_.path() / "sample.stitch"; }
  void write(const Program& p) {
    const auto s = write_bundle(path(), p.bundle, p.weights, p.cases);
    ASSERT_TRUE(s) << s.error().message;
  }
  // Error of reading the sample after program.json was changed.
  std::string error_after(const std::function<void(Json&)>& change) {
    write(sample());
    Json j = Json::parse(*read_file(path() / "program.json"));
    change(j);
    EXPECT_TRUE(write_file(path() / "program.json", dump(j)));
    return error();
  }
  std::string error() const {
    const auto b = read_bundle(path());
    return b ? "read" : b.error().message;
  }
  std::string error_with_text(std::string_view text) {
    write(sample());
    EXPECT_TRUE(write_file(path() / "program.json", text));
    return error();
  }
  TempFolder folder_ = std::move(*TempFolder::create("bundle-test"));
};

TEST_F(BundleTest, RoundTrips) {
  const Program p = sample();
  write(p);
  const auto b = read_bundle(path());
  ASSERT_TRUE(b) << b.error().message;
  EXPECT_EQ(b->name, "sample");
  EXPECT_EQ(b->mode, "eval");
  EXPECT_EQ(b->graph, p.bundle.graph);
  EXPECT_EQ(b->origin.file, "model.py");
  EXPECT_EQ(b->origin.kind, "kernelbench");
  EXPECT_EQ(b->origin.seed, 42);
  EXPECT_TRUE(b->precision.allow_tf32_matmul);
  EXPECT_TRUE(b->precision.allow_tf32_conv);
  EXPECT_EQ(b->input_spec, p.bundle.input_spec);
  EXPECT_EQ(b->output_spec, p.bundle.output_spec);
  EXPECT_TRUE(b->weights[0].parameter);
  EXPECT_FALSE(b->weights[1].parameter);
  EXPECT_EQ(b->case_names, (std::vector<std::string>{"000", "only_inputs-1"}));
  const auto w = read_weights(*b);
  ASSERT_TRUE(w) << w.error().message;
  EXPECT_EQ((*w)[0].data, p.weights[0].data);
  EXPECT_EQ((*w)[1].data, p.weights[1].data);
  const auto c = read_case(*b, "000"), only = read_case(*b, "only_inputs-1");
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_EQ(c->inputs[0].name, "x");
  EXPECT_EQ(c->inputs[0].data, p.cases[0].inputs[0].data);
  EXPECT_EQ(c->expected.size(), 2u);
  EXPECT_EQ(c->expected[1].name, "new_mask");
  ASSERT_TRUE(only);
  EXPECT_TRUE(only->expected.empty());
}

TEST_F(BundleTest, ProgramJsonMistakesAreNamed) {
  EXPECT_EQ(error_after([](Json&) {}), "read");
  EXPECT_THAT(error_after([](Json& j) { j["version"] = 2; }), HasSubstr("made by a newer version"));
  EXPECT_THAT(error_after([](Json& j) { j["version"] = 0; }), HasSubstr("impossible bundle version 0"));
  EXPECT_THAT(error_after([](Json& j) { j["version"] = "1"; }), HasSubstr("must be an integer"));
  EXPECT_THAT(error_after([](Json& j) { j["format"] = "zip"; }), HasSubstr("is not a stitch bundle"));
  for (const char* key : {"format", "version", "name", "mode", "origin", "precision", "graph", "inputs", "weights", "cases", "has_weights"})
    EXPECT_THAT(error_after([&](Json& j) { j.erase(key); }), HasSubstr(fmt::format("lacks \"{}\"", key)));
  EXPECT_THAT(error_after([](Json& j) { j["mode"] = "test"; }), HasSubstr("neither eval nor train"));
  EXPECT_THAT(error_after([](Json& j) { j["graph"][4] = 5; }), HasSubstr("must be a list of lines"));
  EXPECT_THAT(error_after([](Json& j) { j["graph"].erase(j["graph"].size() - 1); }), HasSubstr("without a return line"));
  EXPECT_THAT(error_after([](Json& j) { j["graph"][4] = "%4: f32[2,3] = linaer(%0, %2)"; }), HasSubstr("did you mean \"linear\""));
  EXPECT_THAT(error_after([](Json& j) { j["graph"][4] = "%4: f32[2,4] = linear(%0, %2)"; }), HasSubstr("is declared as f32[2,4], but its arguments give f32[2,3]"));
  EXPECT_THAT(error_after([](Json& j) { j["graph"][4] = "%4: f32[2,3] = linear(%0, %2)\n%5: f32[2] = input()"; }), HasSubstr("\"graph\" in"));
  EXPECT_THAT(error_after([](Json& j) { j["inputs"].erase(1); }), HasSubstr("\"inputs\" in"));
  EXPECT_THAT(error_after([](Json& j) { j["inputs"][0]["name"] = "z"; }), HasSubstr("does not agree with the graph"));
  EXPECT_THAT(error_after([](Json& j) { j["inputs"][0]["dtype"] = "f64"; }), HasSubstr("does not agree"));
  EXPECT_THAT(error_after([](Json& j) { j["inputs"][0]["dtype"] = "float"; }), HasSubstr("unknown dtype \"float\""));
  EXPECT_THAT(error_after([](Json& j) { j["weights"][0]["shape"] = {3, 4}; }), HasSubstr("\"weights\" in"));
  EXPECT_THAT(error_after([](Json& j) { j["weights"][0]["shape"] = {3.5, 3}; }), HasSubstr("no list of integers"));
  EXPECT_THAT(error_after([](Json& j) { j["weights"][0]["parameter"] = 1; }), HasSubstr("\"parameter\""));
  EXPECT_THAT(error_after([](Json& j) { std::swap(j["weights"][0], j["weights"][1]); }), HasSubstr("does not agree"));
  EXPECT_THAT(error_after([](Json& j) { j["inputs"][0]["generator"] = {{"kind", "cauchy"}, {"a", 0}, {"b", 1}, {"seed", 1}}; }), HasSubstr("unknown generator \"cauchy\""));
  EXPECT_THAT(error_after([](Json& j) { j["inputs"][0]["generator"] = {{"kind", "normal"}, {"a", 1e300}, {"b", 1}, {"seed", 1}}; }), HasSubstr("impossible bounds"));
  EXPECT_THAT(error_after([](Json& j) { j["inputs"][0]["generator"] = {{"kind", "normal"}, {"a", 0}, {"b", 1}, {"seed", 1}, {"structure", "band"}}; }), HasSubstr("unknown structure \"band\""));
  EXPECT_THAT(error_after([](Json& j) { j["inputs"][0]["generator"] = 3; }), HasSubstr("must hold a JSON object"));
  EXPECT_THAT(error_after([](Json& j) { j["precision"]["allow_tf32_conv"] = 1; }), HasSubstr("true or false"));
}

// Names reach source files, pages and terminals: what would act there instead of being shown is refused wherever a bundle has a name.
TEST_F(BundleTest, NamesHoldNoControlCharacters) {
  const auto in_graph = [](Json& j, size_t line, const std::string& from, const std::string& to) {
    std::string text = j["graph"][line];
    ASSERT_NE(text.find(from), text.npos) << text;
    j["graph"][line] = text.replace(text.find(from), from.size(), to);
  };
  for (const char* bad : {"\n", "\r", "\x1b[31m", "\x01", "\x7f", "\xc2\x9b", "\xe2\x80\xa8", "\xe2\x80\xae", "\xe2\x81\xa6"}) {
    const std::string name = "fc" + std::string(bad) + "x", quoted = dump(Json(name), -1);
    const auto refused = [&](const char* where, const std::function<void(Json&)>& change) {
      const std::string message = error_after(change);
      EXPECT_THAT(message, testing::AllOf(HasSubstr("program.json"), HasSubstr(where), HasSubstr("holds a control character after \"fc\""))) << quoted;
      for (size_t i = 0; i < message.size(); ++i) EXPECT_EQ(control_length(message, i), 0u) << quoted;
    };
    refused("\"name\"", [&](Json& j) { j["name"] = name; });
    refused("\"file\" of \"origin\"", [&](Json& j) { j["origin"]["file"] = name; });
    refused("he name of node %0", [&](Json& j) { in_graph(j, 0, "\"x\"", quoted); });
    refused("he module path of node %4", [&](Json& j) { j["graph"][4] = j["graph"][4].get<std::string>() + " {scope=" + quoted + "}"; });
    refused("he source place of node %4", [&](Json& j) { j["graph"][4] = j["graph"][4].get<std::string>() + " {source=" + quoted + "}"; });
    refused("he name of output 0", [&](Json& j) { in_graph(j, j["graph"].size() - 1, "\"output0\"", quoted); });
    refused("he name of the tensor that output 1 changes", [&](Json& j) { in_graph(j, j["graph"].size() - 1, "mutates_weight=\"mask\"", "mutates_weight=" + quoted); });
  }
  EXPECT_THAT(error_after([](Json& j) { j["name"] = ""; }), HasSubstr("is empty; give the program a name"));
  EXPECT_THAT(error_after([](Json& j) { j["name"] = std::string(5000, 'a'); }), HasSubstr("is 5000 bytes long"));
  EXPECT_THAT(error_after([](Json& j) { j["graph"][0] = "%0: f32[2,3] = input()"; }), HasSubstr("has no name"));
  EXPECT_EQ(error_after([](Json& j) { j["name"] = "na\xc3\xafve \xe6\xa8\xa1\xe5\x9e\x8b \"*/\\ ?\?/ </script> \xf0\x9f\x99\x82"; }), "read");
}

// Whatever is wrong with the graph, the sentence says in which file.
TEST_F(BundleTest, MistakesInTheGraphNameTheFile) {
  const auto line = [&](size_t at, const char* text) { return error_after([&](Json& j) { j["graph"][at] = text; }); };
  for (const std::string& message :
       {line(4, "%4: f32[2,3] = linaer(%0, %2)"), line(4, "%4: f32[2,4] = linear(%0, %2)"), line(4, "%4: f32[2,3] = linear(%0 %2)"), line(4, "%4: f32[2,3] = linear(%0, %9)"),
        line(4, "%4: f32[2,3] = linear(%0)"), line(4, "%4: f32[2,3] = linear(%0, %2) {scope=\"\\q\"}"), line(0, "return %0"), line(4, "%4: f32[2,3] = linear(%0, 1)"),
        line(1, "%1: f32[2,3] = input() {name=\"x\"}"), line(4, ""), error_after([](Json& j) { j["graph"].erase(j["graph"].size() - 1); })}) {
    EXPECT_THAT(message, HasSubstr((path() / "program.json").string()));
    for (const char* jargon : {"rule:", "Program text", "parse", "validator"}) EXPECT_THAT(message, testing::Not(HasSubstr(jargon)));
    EXPECT_EQ(message.back(), '.');
  }
}

TEST_F(BundleTest, ArgumentTreesAreChecked) {
  for (const char* bad : {R"({"tensor":2})", R"({"tensor":-1})", R"({"tensor":"0"})", R"({"tuple":{"tensor":0}})", R"({"dict":[{"tensor":0}]})", R"({"set":[]})", "[]", "{}",
                          R"({"value":[1]})", R"({"tensor":0,"value":1})", R"({"list":[{"tuple":[{"tensor":9}]}]})",
                          R"({"tuple":[],"kwargs":[]})", R"({"tuple":[],"kwargs":{"x":{"tensor":2}}})", R"({"kwargs":{}})"})
    EXPECT_THAT(error_after([&](Json& j) { j["input_spec"] = Json::parse(bad); }), HasSubstr("\"input_spec\" in")) << bad;
  // Outputs are counted without the mutated buffers.
  EXPECT_THAT(error_after([](Json& j) { j["output_spec"] = {{"tensor", 1}}; }), HasSubstr("\"output_spec\" in"));
  EXPECT_EQ(error_after([](Json& j) { j["output_spec"] = nullptr; }), "read");
}

TEST_F(BundleTest, DamagedTextIsNamed) {
  EXPECT_THAT(error_with_text(""), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_with_text("{\"format\": \"stitch\","), HasSubstr("line 1"));
  EXPECT_THAT(error_with_text("[]"), HasSubstr("must hold a JSON object"));
  EXPECT_THAT(error_with_text(std::string(5000, '[')), HasSubstr("nested deeper"));
}

TEST_F(BundleTest, NamesCannotLeaveTheFolder) {
  for (const char* name : {"../000", "a/b", "", ".", "..", "0.0", "a b", "/etc/passwd", "caf\xc3\xa9"}) {
    EXPECT_THAT(error_after([&](Json& j) { j["cases"] = Json::array({name}); }), HasSubstr("no plain name")) << name;
    EXPECT_THAT(read_case(Bundle{}, name).error().message, HasSubstr("is not a case name")) << name;
  }
  EXPECT_THAT(error_after([](Json& j) { j["cases"] = Json::array({std::string(65, 'a')}); }), HasSubstr("no plain name"));
  EXPECT_THAT(error_after([](Json& j) { j["cases"] = Json::array({1}); }), HasSubstr("no plain name"));
  EXPECT_THAT(error_after([](Json& j) { j["cases"] = Json(20000, "000"); }), HasSubstr("at most 10000"));
}

TEST_F(BundleTest, LinksCannotLeaveTheFolder) {
  write(sample());
  const fs::path outside = folder_.path() / "outside.safetensors";
  fs::copy_file(path() / "weights.safetensors", outside);
  fs::remove(path() / "weights.safetensors");
  fs::create_symlink(outside, path() / "weights.safetensors");
  EXPECT_THAT(error(), HasSubstr("leads out of the bundle"));
  write(sample());
  fs::rename(path() / "cases", folder_.path() / "cases");
  fs::create_directory_symlink(folder_.path() / "cases", path() / "cases");
  EXPECT_THAT(error(), HasSubstr("leads out of the bundle"));
  write(sample());
  fs::rename(path() / "program.json", path() / "p.json");
  fs::create_symlink("p.json", path() / "program.json");  // inside: harmless
  EXPECT_EQ(error(), "read");
}

TEST_F(BundleTest, PipesAreRefusedWithoutWaiting) {
  write(sample());
  fs::remove(path() / "program.json");
  ASSERT_EQ(::mkfifo((path() / "program.json").c_str(), 0600), 0);
  EXPECT_THAT(error(), HasSubstr("no plain file"));
}

TEST_F(BundleTest, MissingAndWrongFilesAreNamed) {
  EXPECT_THAT(error(), HasSubstr("is not a .stitch folder"));
  write(sample());
  fs::remove(path() / "program.json");
  EXPECT_THAT(error(), HasSubstr("program.json does not exist"));
  for (const char* file : {"weights.safetensors", "cases/000.safetensors"}) {
    fs::remove_all(path());
    write(sample());
    fs::remove(path() / file);
    EXPECT_THAT(error(), HasSubstr(fmt::format("{} cannot be opened", (path() / file).string())));
    fs::remove_all(path());
    write(sample());
    fs::resize_file(path() / file, fs::file_size(path() / file) - 1);
    EXPECT_THAT(error(), HasSubstr("cut off"));
    ASSERT_TRUE(write_safetensors(path() / file, {}));
    EXPECT_THAT(error(), HasSubstr("lacks the tensor"));
    ASSERT_TRUE(write_safetensors(path() / file, {make_tensor("fc.weight", {DType::f16, {3, 3}}), make_tensor("input.x", {DType::f16, {2, 3}})}));
    EXPECT_THAT(error(), HasSubstr("but the program needs f32"));
  }
}

TEST_F(BundleTest, CaseWithHalfOfItsExpectationsIsAnError) {
  write(sample());
  Program p = sample();
  for (size_t i : {0, 1}) p.cases[0].inputs[i].name = "input." + p.bundle.inputs[i].name;
  p.cases[0].expected[0].name = "expected.output0";
  ASSERT_TRUE(write_safetensors(path() / "cases/000.safetensors", {p.cases[0].inputs[0], p.cases[0].inputs[1], p.cases[0].expected[0]}));
  const auto b = read_bundle(path());
  ASSERT_TRUE(b);
  EXPECT_THAT(read_case(*b, "000").error().message, HasSubstr("lacks the tensor \"expected.new_mask\""));
}

TEST_F(BundleTest, WeightsMustBeFinite) {
  const auto weights_error = [&](size_t weight, double v) {
    Program p = sample();
    set(p.weights[weight], 2, v);
    write(p);
    const auto w = read_weights(*read_bundle(path()));
    return w ? "read" : w.error().message;
  };
  EXPECT_THAT(weights_error(0, NAN), HasSubstr("\"fc.weight\""));
  EXPECT_THAT(weights_error(0, NAN), HasSubstr("is NaN at element 2; repair"));
  EXPECT_THAT(weights_error(0, INFINITY), HasSubstr("is infinite at element 2"));
  EXPECT_THAT(weights_error(1, NAN), HasSubstr("is NaN at element 2"));
  EXPECT_EQ(weights_error(1, -INFINITY), "read");
}

TEST_F(BundleTest, BundleWithoutWeights) {
  Program p = sample();
  p.weights.clear();
  write(p);
  EXPECT_FALSE(fs::exists(path() / "weights.safetensors"));
  const auto b = read_bundle(path());
  ASSERT_TRUE(b) << b.error().message;
  EXPECT_FALSE(b->has_weights);
  EXPECT_THAT(read_weights(*b).error().message, HasSubstr("holds no weights"));
}

TEST_F(BundleTest, GeneratedTensorsAreMadeOnReading) {
  Program p = sample();
  p.bundle.inputs[0].generator = Generator{"normal", 3, 0.5, 7};
  p.bundle.inputs[1].generator = Generator{"randint", 0, 2, 7};
  p.bundle.weights[0].generator = Generator{"uniform", -1, 1, 7};
  p.bundle.weights[1].generator = Generator{"constant", 0.25, 0, 7};
  p.weights.clear();
  p.cases.clear();
  write(p);
  ASSERT_TRUE(write_safetensors(path() / "cases/000.safetensors", {}));
  Json j = Json::parse(*read_file(path() / "program.json"));
  j["cases"] = Json::array({"000"});
  ASSERT_TRUE(write_file(path() / "program.json", dump(j)));
  const auto b = read_bundle(path());
  ASSERT_TRUE(b) << b.error().message;
  EXPECT_EQ(b->inputs[0].generator->seed, 7u);
  const auto w = read_weights(*b);
  ASSERT_TRUE(w) << w.error().message;
  EXPECT_EQ(get((*w)[1], 2), 0.25);
  const auto c = read_case(*b, "000"), again = read_case(*b, "000");
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_EQ(c->inputs[0].data, again->inputs[0].data);
  EXPECT_NE(get(c->inputs[0], 0), get(c->inputs[0], 1));
}

TEST(Generate, StructureOfTheLastDimsIsImposed) {
  const auto made = [](const char* structure, Shape shape) {
    TensorInfo info{"m", {DType::f32, std::move(shape)}, Generator{"uniform", 0.1, 1, 3, structure}};
    auto t = generate(info, "");
    EXPECT_TRUE(t) << t.error().message;
    return *t;
  };
  const Tensor upper = made("upper", {2, 3, 4}), lower = made("lower", {3, 3}), symmetric = made("symmetric", {3, 3}), rows = made("rows", {2, 4});
  EXPECT_EQ(get(upper, 4), 0);       // (0, 1, 0)
  EXPECT_EQ(get(upper, 12 + 9), 0);  // (1, 2, 1)
  EXPECT_GT(get(upper, 11), 0);
  EXPECT_EQ(get(lower, 1), 0);
  EXPECT_GT(get(lower, 3), 0);
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 3; ++j) EXPECT_EQ(get(symmetric, 3 * i + j), get(symmetric, 3 * j + i));
  EXPECT_NEAR(get(rows, 4) + get(rows, 5) + get(rows, 6) + get(rows, 7), 1, 1e-6);
}

TEST(Generate, DistributionsAreAsDeclared) {
  const auto moments = [](Generator g, DType d = DType::f32) {
    const auto t = generate({"t", {d, {200000}}, g}, "000");
    EXPECT_TRUE(t) << t.error().message;
    double sum = 0, squares = 0, low = INFINITY, high = -INFINITY;
    for (int64_t i = 0; i < 200000; ++i) {
      const double v = get(*t, i);
      sum += v, squares += v * v, low = std::min(low, v), high = std::max(high, v);
    }
    const double mean = sum / 200000;
    return std::array{mean, std::sqrt(squares / 200000 - mean * mean), low, high};
  };
  const auto n = moments({"normal", 2, 3, 1}), u = moments({"uniform", -1, 3, 1}), r = moments({"randint", -2, 3, 1}, DType::i64), c = moments({"constant", 1.5, 0, 1});
  EXPECT_NEAR(n[0], 2, 0.03);
  EXPECT_NEAR(n[1], 3, 0.03);
  EXPECT_NEAR(u[0], 1, 0.02);
  EXPECT_NEAR(u[1], 4 / std::sqrt(12.0), 0.02);
  EXPECT_GE(u[2], -1);
  EXPECT_LE(u[3], 3);
  EXPECT_NEAR(r[0], 0, 0.02);
  EXPECT_EQ(r[2], -2);
  EXPECT_EQ(r[3], 2);
  EXPECT_EQ(c[2], 1.5);
  EXPECT_EQ(c[3], 1.5);
}

TEST(Generate, StreamsDifferByNameSeedAndCase) {
  const auto first = [](const char* name, uint64_t seed, const char* salt) { return get(*generate({name, {DType::f64, {1}}, Generator{"uniform", 0, 1, seed}}, salt), 0); };
  const double a = first("a", 1, "000");
  EXPECT_EQ(a, first("a", 1, "000"));
  EXPECT_NE(a, first("b", 1, "000"));
  EXPECT_NE(a, first("a", 2, "000"));
  EXPECT_NE(a, first("a", 1, "001"));
  EXPECT_FALSE(generate({"a", {DType::i64, {1}}, Generator{"normal", 0, 1, 1}}, ""));
  EXPECT_FALSE(generate({"a", {DType::f32, {1}}, {}}, ""));
  EXPECT_THAT(generate({"a", {DType::f64, {int64_t{1} << 48}}, Generator{"uniform", 0, 1, 1}}, "").error().message, HasSubstr("does not fit in this machine's memory"));
}

TEST_F(BundleTest, WriterReplacesBundlesOnly) {
  write(sample());
  Program p = sample();
  p.bundle.name = "second";
  p.cases.pop_back();
  write(p);
  EXPECT_EQ(read_bundle(path())->name, "second");
  EXPECT_FALSE(fs::exists(path() / "cases/only_inputs-1.safetensors"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), {}), 1);  // nothing beside it
  const fs::path home = folder_.path() / "home";
  ASSERT_TRUE(write_file(home / "thesis.txt", "years"));
  EXPECT_THAT(write_bundle(home, p.bundle, p.weights, p.cases).error().message, HasSubstr("is no .stitch bundle"));
  EXPECT_TRUE(fs::exists(home / "thesis.txt"));
}

TEST_F(BundleTest, FailedWriteLeavesTheOldBundle) {
  write(sample());
  const auto fails = [&](const std::function<void(Program&)>& change) {
    Program p = sample();
    p.bundle.name = "broken";
    change(p);
    const auto s = write_bundle(path(), p.bundle, p.weights, p.cases);
    EXPECT_FALSE(s);
    EXPECT_EQ(read_bundle(path())->name, "sample");
    EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), {}), 1);
    return s ? "written" : s.error().message;
  };
  EXPECT_THAT(fails([](Program& p) { p.weights.pop_back(); }), HasSubstr("names 2 weights, 1 are given"));
  EXPECT_THAT(fails([](Program& p) { p.weights[0].data.pop_back(); }), HasSubstr("\"fc.weight\" does not match"));
  EXPECT_THAT(fails([](Program& p) { p.cases[0].name = "../x"; }), HasSubstr("The case \"../x\" does not match"));
  EXPECT_THAT(fails([](Program& p) { p.cases[0].inputs.pop_back(); }), HasSubstr("does not match"));
  EXPECT_THAT(fails([](Program& p) { p.bundle.graph.nodes[4].types[0].shape = {1}; }), HasSubstr("but its arguments give"));
  EXPECT_THAT(fails([](Program& p) { p.bundle.mode = ""; }), HasSubstr("neither eval nor train"));
  EXPECT_THAT(fails([](Program& p) { p.bundle.inputs[0].type.shape = {3, 2}; p.cases.clear(); }), HasSubstr("does not agree with the graph"));
}

}  // namespace
}  // namespace stitch::ir
