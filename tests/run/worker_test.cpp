#include "run/worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "run/candidate.h"
#include "run/candidates.h"

namespace stitch::run {
namespace {

using ::testing::HasSubstr;
using test::build_candidate;

struct Rig {
  std::unique_ptr<Worker> worker;
  std::unique_ptr<SharedRegion> weights, inputs, outputs, workspace;
};

WorkerSpec spec_for(const std::filesystem::path& library) {
  WorkerSpec spec;
  spec.candidate = library;
  spec.load_timeout = std::chrono::seconds(20);
  spec.call_timeout = std::chrono::seconds(30);  // generous: a busy machine must not turn a test around
  spec.memory_limit = 1u << 30;
  return spec;
}

std::unique_ptr<SharedRegion> region(std::vector<ir::TensorType> types) {
  auto r = SharedRegion::create("test", types);
  EXPECT_TRUE(r);
  return std::make_unique<SharedRegion>(std::move(*r));
}

Rig rig_for(const WorkerSpec& spec) {
  Rig rig;
  auto worker = Worker::start(spec);
  EXPECT_TRUE(worker) << worker.error().message;
  if (!worker) return rig;
  rig.worker = std::move(*worker);
  const ir::TensorType matrix{ir::DType::f32, {4, 64}}, vector{ir::DType::f32, {64}};
  rig.weights = region({vector});
  rig.inputs = region({matrix});
  rig.outputs = region({matrix});
  auto fill = [](std::span<std::byte> bytes, float base) {
    auto* f = reinterpret_cast<float*>(bytes.data());
    for (size_t i = 0; i < bytes.size() / 4; ++i) f[i] = base + static_cast<float>(i);
  };
  fill(rig.weights->data(0), 1);
  fill(rig.inputs->data(0), 10);
  rig.outputs->poison(kPoisonNan);
  EXPECT_TRUE(rig.worker->map(Region::weights, *rig.weights, 1));
  EXPECT_TRUE(rig.worker->map(Region::inputs0, *rig.inputs, 1));
  EXPECT_TRUE(rig.worker->map(Region::outputs0, *rig.outputs, 1));
  return rig;
}

// Loads, creates and runs once; the failure at whatever step, or nullopt.
std::optional<CandidateFailure> drive(Rig& rig) {
  if (auto r = rig.worker->load(); !r) return r.error();
  if (auto r = rig.worker->create(); !r) return r.error();
  rig.workspace = region({{ir::DType::u8, {1024}}});
  if (auto r = rig.worker->map(Region::workspace, *rig.workspace, 1); !r) return r.error();
  if (auto r = rig.worker->run(0, 0, kPoisonNan); !r) return r.error();
  return std::nullopt;
}

std::optional<CandidateFailure> outcome_of(const std::string& source, const std::string& defines = "") {
  auto rig = rig_for(spec_for(build_candidate(source, defines)));
  return rig.worker ? drive(rig) : std::nullopt;
}

TEST(Worker, RunsAnHonestCandidate) {
  auto rig = rig_for(spec_for(build_candidate(test::kHonest)));
  ASSERT_TRUE(rig.worker);
  ASSERT_FALSE(drive(rig));
  const auto* y = reinterpret_cast<const float*>(rig.outputs->data(0).data());
  const auto* x = reinterpret_cast<const float*>(rig.inputs->data(0).data());
  for (int i = 0; i < 256; ++i) ASSERT_EQ(y[i], x[i] * static_cast<float>(1 + i % 64));
  EXPECT_FALSE(rig.outputs->damaged_redzone());
  EXPECT_EQ(rig.worker->changed_code(), std::optional<std::string>(""));
  rig.worker->quit();
}

TEST(Worker, NamesTheSignalOfACrash) {
  const auto f = outcome_of("RUN(*reinterpret_cast<volatile int*>(8) = 1;)");
  ASSERT_TRUE(f);
  EXPECT_EQ(f->kind, FailureKind::crashed);
  EXPECT_THAT(f->sentence, HasSubstr("SIGSEGV in stitch_run"));
}

TEST(Worker, EarlyExitIsNotSuccess) {
  const auto f = outcome_of("RUN(honest(p, x, y); _exit(0);)");
  ASSERT_TRUE(f);
  EXPECT_EQ(f->kind, FailureKind::exited);
  EXPECT_THAT(f->sentence, HasSubstr("exit code 0 in stitch_run"));
}

TEST(Worker, HangIsStopped) {
  auto spec = spec_for(build_candidate("RUN(for (volatile int i = 0;; ++i) {})"));
  spec.call_timeout = std::chrono::milliseconds(300);
  auto rig = rig_for(spec);
  ASSERT_TRUE(rig.worker);
  const auto f = drive(rig);
  ASSERT_TRUE(f);
  EXPECT_EQ(f->kind, FailureKind::timed_out);
}

TEST(Worker, ForkBombGetsNoProcess) {
  auto rig = rig_for(spec_for(build_candidate("RUN(honest(p, x, y); int made = 0; for (int i = 0; i < 100; ++i) if (fork() >= 0) ++made; y[0] = made;)")));
  ASSERT_TRUE(rig.worker);
  ASSERT_FALSE(drive(rig));
  EXPECT_EQ(*reinterpret_cast<const float*>(rig.outputs->data(0).data()), 0.0f);
}

TEST(Worker, ThreadBombIsStopped) {
  auto spec = spec_for(build_candidate("RUN(for (int i = 0; i < 5000; ++i) std::thread([] { sleep(100); }).detach(); sleep(100);)"));
  spec.thread_limit = 64;
  spec.memory_limit = uint64_t{64} << 30;
  spec.call_timeout = std::chrono::seconds(20);
  auto rig = rig_for(spec);
  ASSERT_TRUE(rig.worker);
  const auto f = drive(rig);
  ASSERT_TRUE(f);
  EXPECT_EQ(f->kind, FailureKind::thread_limit) << f->sentence;
}

TEST(Worker, MemoryHogCostsOnlyItself) {
  const auto f = outcome_of(R"(RUN(std::vector<void*> all; for (;;) { void* m = malloc(1 << 26); if (!m) abort(); memset(m, 1, 1 << 26); all.push_back(m); }))");
  ASSERT_TRUE(f);
  EXPECT_TRUE(f->kind == FailureKind::crashed || f->kind == FailureKind::memory_limit) << f->sentence;
}

TEST(Worker, OutputFloodIsStopped) {
  const auto f = outcome_of("RUN(std::string s(1 << 16, 'x'); for (;;) fwrite(s.data(), 1, s.size(), stdout);)");
  ASSERT_TRUE(f);
  EXPECT_EQ(f->kind, FailureKind::output_flood);
}

TEST(Worker, ForgedAnswerIsNoticed) {
  const auto f = outcome_of(R"(RUN(char forged[872] = {}; for (int fd = 3; fd < 8; ++fd) send(fd, forged, sizeof forged, MSG_NOSIGNAL); sleep(1);))");
  ASSERT_TRUE(f);
  EXPECT_EQ(f->kind, FailureKind::protocol);
}

TEST(Worker, WritesBehindTheOutputShowInTheRedZone) {
  auto rig = rig_for(spec_for(build_candidate("RUN(honest(p, x, y); y[256] = 1;)")));
  ASSERT_TRUE(rig.worker);
  ASSERT_FALSE(drive(rig));
  const auto damage = rig.outputs->damaged_redzone();
  ASSERT_TRUE(damage);
  EXPECT_EQ(damage->offset, 1024);
}

TEST(Worker, WritesFarBehindTheOutputFault) {
  const auto f = outcome_of("RUN(for (int i = 0; i < 4096; ++i) y[i] = 1;)");
  ASSERT_TRUE(f);
  EXPECT_EQ(f->kind, FailureKind::crashed);
}

TEST(Worker, PatchedCodeIsSeenFromOutside) {
  // Overwrites a byte of libc's text, as a hook of the timer or of memcpy would.
  auto rig = rig_for(spec_for(build_candidate(R"(RUN(
    honest(p, x, y);
    auto page = reinterpret_cast<uintptr_t>(reinterpret_cast<void*>(&getpid)) & ~uintptr_t{4095};
    mprotect(reinterpret_cast<void*>(page), 8192, PROT_READ | PROT_WRITE | PROT_EXEC);
    *reinterpret_cast<volatile unsigned char*>(&getpid) = 0xC3;
    mprotect(reinterpret_cast<void*>(page), 8192, PROT_READ | PROT_EXEC);))")));
  ASSERT_TRUE(rig.worker);
  ASSERT_FALSE(drive(rig));
  const auto changed = rig.worker->changed_code();
  ASSERT_TRUE(changed);
  EXPECT_THAT(*changed, HasSubstr("libc"));
}

TEST(Worker, LoadFailuresSayWhy) {
  auto f = outcome_of(test::kHonest, "#define NO_LAST_ERROR");
  ASSERT_TRUE(f);
  EXPECT_EQ(f->kind, FailureKind::missing_symbol);
  EXPECT_THAT(f->sentence, HasSubstr("stitch_last_error"));
  f = outcome_of(test::kHonest, "#define VERSION 7");
  ASSERT_TRUE(f);
  EXPECT_EQ(f->kind, FailureKind::abi_version);
  EXPECT_THAT(f->sentence, HasSubstr("version 7"));
  f = outcome_of("extern \"C\" int nowhere(); RUN(y[0] = nowhere();)");
  ASSERT_TRUE(f);
  EXPECT_EQ(f->kind, FailureKind::load_failed);
  f = outcome_of("RUN(g_error = \"no luck\"; return 3;)");
  ASSERT_TRUE(f);
  EXPECT_EQ(f->kind, FailureKind::run_failed);
  EXPECT_THAT(f->sentence, HasSubstr("no luck"));
}

TEST(Worker, TextIsNotALibrary) {
  auto folder = TempFolder::create("worker-test");
  ASSERT_TRUE(folder);
  const auto file = folder->path() / "program.so";
  ASSERT_TRUE(write_file(file, std::string(200, 'a')));
  const auto f = check_elf(file);
  ASSERT_TRUE(f);
  EXPECT_EQ(f->kind, FailureKind::not_elf);
}

class SandboxLevels : public ::testing::TestWithParam<SandboxLevel> {};

// What a shut-in candidate finds: bits set for every thing it should not be able to do.
const char* kEscapeArtist = R"(
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/ptrace.h>
RUN(
  honest(p, x, y);
  int bad = 0;
  if (open("/etc/shadow", O_RDONLY) >= 0 || open("/root/.bashrc", O_RDONLY) >= 0 || opendir("/home")) bad |= 1;
  if (open("/usr/escaped", O_CREAT | O_WRONLY, 0600) >= 0) bad |= 2;
  if (socket(AF_INET, SOCK_STREAM, 0) >= 0) bad |= 4;
  if (kill(1, 0) == 0) bad |= 8;
  if (ptrace(PTRACE_TRACEME, 0, 0, 0) == 0) bad |= 16;
  if (fork() >= 0) bad |= 32;
  y[0] = bad;))";

TEST_P(SandboxLevels, KeepsTheCandidateIn) {
  auto spec = spec_for(build_candidate(kEscapeArtist));
  spec.sandbox = GetParam();
  auto worker = Worker::start(spec);
  if (!worker && worker.error().kind == ErrorKind::environment) GTEST_SKIP() << worker.error().message;
  auto rig = rig_for(spec);
  ASSERT_TRUE(rig.worker);
  const auto f = drive(rig);
  ASSERT_FALSE(f) << f->sentence << f->printed;
  const int bad = static_cast<int>(*reinterpret_cast<const float*>(rig.outputs->data(0).data()));
  // Without namespaces the file system stays visible: that is why the level is named in the verdict.
  EXPECT_EQ(GetParam() == SandboxLevel::seccomp ? bad & ~3 : bad, 0);
  EXPECT_EQ(rig.worker->sandbox(), GetParam());
}

INSTANTIATE_TEST_SUITE_P(All, SandboxLevels, ::testing::Values(SandboxLevel::bubblewrap, SandboxLevel::namespaces, SandboxLevel::seccomp),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST(Region, RedZonesCatchBothSides) {
  auto r = region({{ir::DType::f32, {3}}, {ir::DType::i8, {7}}});
  EXPECT_FALSE(r->damaged_redzone());
  r->data(1).data()[7] = std::byte{1};
  auto damage = r->damaged_redzone();
  ASSERT_TRUE(damage);
  EXPECT_EQ(damage->tensor, 1u);
  EXPECT_EQ(damage->offset, 7);
  auto s = region({{ir::DType::f32, {3}}});
  s->data(0).data()[-4] = std::byte{1};
  damage = s->damaged_redzone();
  ASSERT_TRUE(damage);
  EXPECT_EQ(damage->offset, -4);
}

TEST(Region, PoisonIsNotANumberInEveryFloatType) {
  for (auto dtype : {ir::DType::f64, ir::DType::f32, ir::DType::f16, ir::DType::bf16}) {
    auto r = region({{dtype, {4}}});
    r->poison(kPoisonNan);
    ir::Tensor t{"", {dtype, {4}}, {}};
    t.data.assign(r->data(0).begin(), r->data(0).end());
    EXPECT_TRUE(std::isnan(ir::get(t, 3)));
  }
}

}  // namespace
}  // namespace stitch::run
