// The translator on its own: what is rewritten, what is left alone, and that lines stay where they were.

#include "run/host/translate.h"

#include <gmock/gmock.h>

#include <algorithm>

namespace stitch::host {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string translated(const std::string& source) {
  auto r = translate(source, "k.cu");
  return r ? *r : "ERROR " + r.error().message;
}

struct Case {
  const char* name;
  const char* source;
  std::vector<const char*> has, has_not;
};

class TranslateTest : public ::testing::TestWithParam<Case> {};

TEST_P(TranslateTest, Rewrites) {
  const std::string out = translated(GetParam().source);
  for (const char* text : GetParam().has) EXPECT_THAT(out, HasSubstr(text));
  for (const char* text : GetParam().has_not) EXPECT_THAT(out, Not(HasSubstr(text)));
  const std::string source = GetParam().source;
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), std::count(source.begin(), source.end(), '\n') + 1) << out;
}

const Case kCases[] = {
    {"plain_launch", "void f() { k<<<1, 32>>>(a, b); }", {"\"k\", k)", ".configure(1, 32)(a, b);"}, {"<<<"}},
    {"template_launch", "void f() { k<float, 4><<<g, b, 0, s>>>(a); }", {"k<float, 4>(stitch_a...)", ".configure(g, b, 0, s)(a);"}, {"<<<"}},
    {"nested_template", "void f() { k<Foo<int, Bar<2>>><<<g, b>>>(a); }", {"\"k<Foo<int, Bar<2>>>\"", ".configure(g, b)(a)"}, {"<<<"}},
    {"qualified", "void f() { ::ns::detail::k<T><<<g, b>>>(a); }", {"::ns::detail::k<T>(stitch_a...)"}, {"<<<"}},
    {"multi_line", "void f() {\n  k<T,\n    U>\n  <<<dim3(1, 2),\n  32>>>(\n  a);\n}", {"k<T, U>"}, {"<<<"}},
    {"comparison_in_template", "void f() { k<(N > 4)><<<g, b>>>(a); }", {"k<(N > 4)>(stitch_a...)"}, {"<<<"}},
    {"sizeof_in_config", "void f() { k<<<g, b, n * sizeof(V<float>)>>>(a); }", {".configure(g, b, n * sizeof(V<float>))(a)"}, {}},
    {"function_pointer_array", "void f() { kernels[i]<<<g, b>>>(a); }", {"kernels[i](stitch_a...)"}, {"<<<"}},
    {"parenthesised", "void f() { (k<A, B>)<<<g, b>>>(a); }", {"(k<A, B>)(stitch_a...)"}, {"<<<"}},
    {"after_condition", "void f() { if (x) k<<<g, b>>>(a); else j<<<g, b>>>(c); }", {"if (x) [=]", "else [=]"}, {"<<<"}},
    {"after_return", "auto f() { return k<<<g, b>>>(a); }", {"return [=]"}, {"<<<"}},
    {"in_macro", "#define RUN(K) K<T> \\\n  <<<g, b>>>(x)\nint y;", {".configure(g, b)(x)"}, {"<<<"}},
    {"in_string", "const char* s = \"k<<<1, 2>>>(x)\"; char c = '<';", {"\"k<<<1, 2>>>(x)\""}, {"configure"}},
    {"in_raw_string", "auto s = R\"x(k<<<1>>>(\" )y\" __shared__)x\";", {"k<<<1>>>("}, {"configure", "shared<"}},
    {"in_comment", "// k<<<1, 2>>>(x)\n/* __shared__ float a[2]; asm(\"x\") */ int y;", {"k<<<1, 2>>>(x)"}, {"configure"}},
    {"shift_left", "int f() { return a << b << c; }", {"a << b << c"}, {"configure"}},
    {"shared_array", "void f() { __shared__ float t[32][33]; }", {"auto& t = ::stitch_emu::shared<float [ 32 ] [ 33 ] >"}, {"__shared__"}},
    {"shared_many", "void f() { __shared__ int a, b[4], *p; }", {"auto& a = ::stitch_emu::shared<int>", "auto& b = ::stitch_emu::shared<int [ 4 ] >", "auto& p = ::stitch_emu::shared<int*>"}, {}},
    {"shared_aligned", "void f() { __shared__ __align__(128) unsigned char t[N]; }", {"shared<unsigned char [ N ] >", "\"t\", 128)"}, {}},
    {"shared_alignas_first", "void f() { alignas(16) __shared__ half t[8]; }", {"shared<half [ 8 ] >", ", 16)"}, {"alignas"}},
    {"shared_template_type", "void f() { __shared__ typename R<T, N>::Temp t; }", {"shared<typename R < T , N > :: Temp>"}, {}},
    {"shared_multi_line", "void f() {\n  __shared__ float a[4],\n      b[2];\n  int x;\n}", {"auto& b"}, {}},
    {"static_shared", "void f() { static __shared__ int n; }", {"auto& n"}, {"static __shared__"}},
    {"volatile_shared", "void f() { volatile __shared__ float v[32]; }", {"shared<volatile float [ 32 ] >"}, {}},
    {"dynamic", "void f() { extern __shared__ __align__(16) char raw[]; }", {"auto* raw = ::stitch_emu::dynamic_shared<char>()"}, {"extern"}},
    {"dynamic_2d", "void f() { extern __shared__ float s[][33]; }", {"dynamic_shared<float [ 33 ] >()"}, {}},
    {"dynamic_global", "namespace x { extern __shared__ float s[]; }", {"static ::stitch_emu::DynamicShared<float> s"}, {}},
    {"noinline", "__noinline__ __device__ int f(); __attribute__((__noinline__)) int g();", {"__attribute__((noinline)) __device__", "__attribute__((__noinline__))"}, {}},
    {"asm_guarded", "#ifdef __CUDA_ARCH__\nasm(\"mma\");\n#else\nk();\n#endif\n", {"asm(\"mma\")"}, {"ERROR"}},
    {"asm_guarded_by_version", "#if __CUDA_ARCH__ >= 800\nasm(\"mma\");\n#endif\n", {"asm(\"mma\")"}, {"ERROR"}},
    {"asm_guarded_by_emulator", "#if !defined(STITCH_HOST_EMULATOR) && X\nasm(\"mma\");\n#endif\n", {}, {"ERROR"}},
    {"line_directive", "int x;", {"#line 1 \"k.cu\"\nint x;"}, {}},
};
INSTANTIATE_TEST_SUITE_P(Source, TranslateTest, ::testing::ValuesIn(kCases), [](const auto& i) { return i.param.name; });

struct Refusal {
  const char* name;
  const char* source;
  const char* message;
};
class RefusalTest : public ::testing::TestWithParam<Refusal> {};
TEST_P(RefusalTest, NamesTheLine) { EXPECT_THAT(translated(GetParam().source), HasSubstr(GetParam().message)); }
const Refusal kRefusals[] = {
    {"inline_ptx", "void f() {\n  asm volatile(\"bar.sync 0;\");\n}", "k.cu:2: inline PTX"},
    {"ptx_in_else", "#ifdef STITCH_HOST_EMULATOR\nasm(\"a\");\n#endif", "k.cu:2: inline PTX"},
    {"unclosed_launch", "void f() {\n\n k<<<1, 2; }", "k.cu:3: <<< without"},
    {"static_shared_at_file_scope", "__shared__ float x[4];", "k.cu:1: a __shared__ variable outside a function"},
    {"anonymous_struct", "void f() { __shared__ struct { int a; } s; }", "k.cu:1: give the type"},
};
INSTANTIATE_TEST_SUITE_P(Source, RefusalTest, ::testing::ValuesIn(kRefusals), [](const auto& i) { return i.param.name; });

}  // namespace
}  // namespace stitch::host
