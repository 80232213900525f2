// Names of a bundle in generated code: whatever they are, the program compiles and computes the same.
#include <gtest/gtest.h>

#include <set>

#include "code/literals.h"
#include "code/skill.h"
#include "ir/samples.h"
#include "loop/generated_program.h"
#include "plan/plan.h"
#include "plan/prepare.h"
#include "run/host/lexer.h"

namespace stitch::testing {
namespace {

ir::Graph parsed(const std::string& text) {
  auto g = ir::parse(text);
  EXPECT_TRUE(g) << (g ? "" : g.error().message);
  return g.value_or(ir::Graph{});
}

code::Sources sources_of(const ir::Graph& graph, const std::string& program, bool fuse = true) {
  const auto prepared = plan::prepare(graph);
  EXPECT_TRUE(prepared);
  plan::PlanOptions options{*hw::find_device("h200"), hw::PrecisionClass::fp32};
  options.fuse = fuse;
  const auto planned = plan::plan_builtin(*prepared, program, options);
  EXPECT_TRUE(planned);
  auto sources = code::code_builtin(*prepared, *planned, {hw::PrecisionClass::fp32});
  EXPECT_TRUE(sources) << (sources ? "" : sources.error().message);
  return sources.value_or(code::Sources{});
}

const std::string& text_of(const code::Sources& s, std::string_view name) {
  for (const code::SourceFile& f : s.files)
    if (f.name == name) return f.text;
  static const std::string none;
  return none;
}

std::string parameter_for(const std::string& name) {
  ir::Graph g = parsed("%0: f32[2] = input() {name=\"x\"}\n%1: f32[2] = neg(%0)\nreturn %1 {name=\"y\"}\n");
  g.nodes[0].name = name;
  plan::Task task;
  task.nodes = {1};
  task.inputs = {{0, 0}};
  task.outputs = {{1, 0}};
  return code::TaskContext{g, task, hw::PrecisionClass::fp32}.parameter({0, 0});
}

bool is_plain_identifier(const std::string& s) {
  return !s.empty() && !std::isdigit(static_cast<unsigned char>(s[0])) && s[0] != '_' && s.find("__") == s.npos &&
         std::all_of(s.begin(), s.end(), [](unsigned char c) { return c < 0x80 && (std::isalnum(c) || c == '_'); });
}

const std::string kNasty[] = {"*/", "/*", "//", "a\\", "a\\\\", "?\?/", "\"", "'", "</script><b>", "${x}", "%s", "{}", "{0}", "@TARGET@", "@NAME@", "R\"(", ")\"", "#define x", "#include \"x\"",
                              "\xc3\xa9", "na\xc3\xafve.w", "\xe6\xa8\xa1\xe5\x9e\x8b", "\xf0\x9f\x99\x82", "_", "__", "___x", "0", "9lives", "a b", "a-b", "a.b", "a_b", "a__b", "a.b_n3", " ", ".", "-",
                              "int", "template", "co_await", "errno", "NULL", "expf", "std", "scratch", "x_n5", "v7", std::string(4000, 'w')};

TEST(GeneratedNames, AnyNameGivesAPlainIdentifier) {
  for (const std::string& name : kNasty) EXPECT_TRUE(is_plain_identifier(parameter_for(name))) << name << " gives " << parameter_for(name);
  EXPECT_EQ(parameter_for("fc.weight"), "fc_weight");
}

TEST(GeneratedNames, LiteralsOfAllLanguagesHoldAnyName) {
  for (const std::string& name : kNasty) {
    const std::string comment = code::comment_text(name), literal = code::c_string(name);
    EXPECT_LE(comment.size(), 200u);
    for (const char* bad : {"*/", "/*", "\\", "?\?", "\n"}) EXPECT_EQ(comment.find(bad), comment.npos) << name;
    EXPECT_EQ(literal.find("?\?"), literal.npos);
    const auto tokens = host::lex(literal);
    EXPECT_TRUE(tokens.size() == 1 && tokens[0].kind == host::TokenKind::literal && tokens[0].end == literal.size()) << literal;
  }
  EXPECT_EQ(code::comment_text("two\nlines\\"), "two lines/");
  EXPECT_EQ(code::c_string("\xc3\xa9\"\\"), "\"\\303\\251\\\"\\\\\"");
}

// Every word that the generated kernels use (functions, types, variables) would be hidden by a parameter of that name.
TEST(GeneratedNames, NoParameterHidesAWordOfTheGeneratedCode) {
  std::string text;
  std::set<std::string> own;
  for (const bool fuse : {true, false}) {
    for (const std::string& sample : ir::test::all_samples()) {
      const ir::Graph g = parsed(ir::test::program_with(sample));
      const auto prepared = plan::prepare(g);
      const code::Sources s = sources_of(g, "words", fuse);
      text += text_of(s, "kernels.cu");
      for (const auto& n : prepared->nodes) own.insert(n.name);
    }
  }
  for (const std::string& name : std::set<std::string>(own)) own.insert(parameter_for(name));
  std::set<std::string> words;
  const auto tokens = host::lex(text);
  const auto word = [&](size_t i) { return std::string_view(text).substr(tokens[i].begin, tokens[i].end - tokens[i].begin); };
  for (size_t i = 1; i < tokens.size(); ++i)
    if (tokens[i].kind == host::TokenKind::identifier && !tokens[i].in_directive && word(i - 1) != "." && word(i - 1) != "::") words.insert(std::string(word(i)));
  std::string hidden;
  for (const std::string& w : words) {
    const bool task = w.size() > 3 && w[0] == 't' && std::isdigit(static_cast<unsigned char>(w[1]));  // tNN_name: a task's own function
    const size_t number = w.find_last_not_of("0123456789");
    const bool value = number + 1 < w.size() && w[number] == '_';                                     // op_12: an intermediate value
    if (!own.count(w) && !task && !value && parameter_for(w) == w) hidden += w + " ";
  }
  EXPECT_EQ(hidden, "");
}

TEST(GeneratedNames, NastyNamesCompileAndCompute) {
  // One elementwise task with as many operands as there are names would be too wide: a chain of sums.
  std::string leaves, nodes, last;
  int count = 0;
  for (const std::string& name : kNasty) {
    std::string quoted;
    for (char c : name) quoted += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
    leaves += fmt::format("%{}: f32[2,3] = {}() {{name=\"{}\"}}\n", count, count % 2 ? "weight" : "input", quoted);
    ++count;
  }
  for (int i = 0; i < count; ++i) {
    nodes += i == 0 ? fmt::format("%{}: f32[2,3] = exp(%0)\n", count) : fmt::format("%{}: f32[2,3] = mul(%{}, %{})\n", count + i, count + i - 1, i);
    last = fmt::format("%{}", count + i);
  }
  const ir::Graph g = parsed(leaves + nodes + "return " + last + " {name=\"*/ \\\\ \\\"out\\\"\"}\n");
  EXPECT_TRUE(ir::validate(g));
  EXPECT_TRUE(agrees_with_interpreter(g, {true, false, "evil */ \\ ?\?/ @TARGET@ \"\xc3\xa9\" \\"}, 5));
}

TEST(GeneratedNames, NamesThatBecomeTheSameIdentifierStayApart) {
  const char* same[] = {"a.b", "a_b", "a b", "a__b", "a_b_n1", "a_b_n2", "\xc3\xa9", "\xe6\xa8\xa1", "p", "a_b_n1_0"};
  std::string text;
  int count = 0;
  for (const char* name : same) text += fmt::format("%{}: f32[2] = input() {{name=\"{}\"}}\n", count++, name);
  text += "%10: f32[2] = cat([%0, %1], dim=0)\nreturn %0 {name=\"o\"}\n";
  ir::Graph g = parsed(text);
  plan::Task task;
  for (int i = 0; i < count; ++i) task.inputs.push_back({i, 0});
  std::set<std::string> names;
  for (const ir::ValueRef v : task.inputs) {
    const std::string name = code::TaskContext{g, task, hw::PrecisionClass::fp32}.parameter(v);
    EXPECT_TRUE(is_plain_identifier(name)) << name;
    names.insert(name);
  }
  EXPECT_EQ(names.size(), task.inputs.size());
}

}  // namespace
}  // namespace stitch::testing
