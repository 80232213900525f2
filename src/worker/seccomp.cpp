// A deny list in classic BPF. Process creation and exec are refused because a candidate is a library that computes:
// it needs threads, not processes.
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "worker/worker.h"

namespace stitch::worker {
namespace {

constexpr uint32_t kRefused = SECCOMP_RET_ERRNO | EPERM;

class Filter {
 public:
  void add(uint16_t code, uint32_t k, uint8_t jt = 0, uint8_t jf = 0) { program_.push_back({code, jt, jf, k}); }
  void load(uint32_t offset) { add(BPF_LD | BPF_W | BPF_ABS, offset); }
  void answer(uint32_t action) { add(BPF_RET | BPF_K, action); }
  // If the syscall is `nr`, give `action`; else go on. The accumulator holds the number throughout.
  void refuse(long nr, uint32_t action = kRefused) {
    add(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(nr), 0, 1);
    answer(action);
  }
  // If the syscall is `nr` and its argument does not equal one of `allowed`, refuse.
  void only_argument(long nr, int argument, std::vector<uint32_t> allowed) {
    // jump over: load, tests, refuse, allow
    add(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(nr), 0, static_cast<uint8_t>(allowed.size() + 3));
    load(offsetof(seccomp_data, args) + 8 * static_cast<uint32_t>(argument));
    for (size_t i = 0; i < allowed.size(); ++i)
      add(BPF_JMP | BPF_JEQ | BPF_K, allowed[i], static_cast<uint8_t>(allowed.size() - i), 0);
    answer(kRefused);
    answer(SECCOMP_RET_ALLOW);
  }
  void only_with_bits(long nr, int argument, uint32_t bits) {
    add(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(nr), 0, 4);
    load(offsetof(seccomp_data, args) + 8 * static_cast<uint32_t>(argument));
    add(BPF_JMP | BPF_JSET | BPF_K, bits, 1, 0);
    answer(kRefused);
    answer(SECCOMP_RET_ALLOW);
  }
  void only_null_argument(long nr, int argument) {
    const auto low = static_cast<uint32_t>(offsetof(seccomp_data, args)) + 8 * static_cast<uint32_t>(argument);
    add(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(nr), 0, 6);
    load(low);
    add(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 2);
    load(low + 4);
    add(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0);
    answer(kRefused);
    answer(SECCOMP_RET_ALLOW);
  }
  std::vector<sock_filter>& program() { return program_; }

 private:
  std::vector<sock_filter> program_;
};

}  // namespace

std::string install_seccomp(bool cuda) {
#if defined(__x86_64__)
  Filter f;
  f.load(offsetof(seccomp_data, arch));
  f.add(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0);
  f.answer(SECCOMP_RET_KILL_PROCESS);
  f.load(offsetof(seccomp_data, nr));
  f.add(BPF_JMP | BPF_JGE | BPF_K, 0x40000000u, 0, 1);  // the x32 numbers would bypass the list below
  f.answer(SECCOMP_RET_KILL_PROCESS);

  f.refuse(SYS_clone3, SECCOMP_RET_ERRNO | ENOSYS);  // its flags are behind a pointer; glibc falls back to clone
  f.only_with_bits(SYS_clone, 0, CLONE_THREAD);
  const long own = getpid();
  f.only_argument(SYS_kill, 0, {static_cast<uint32_t>(own)});
  f.only_argument(SYS_tgkill, 0, {static_cast<uint32_t>(own)});
  f.only_null_argument(SYS_prlimit64, 2);  // reading limits is harmless, raising them is not
  for (long nr : {SYS_fork, SYS_vfork, SYS_execve, SYS_execveat, SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev,
                  SYS_tkill, SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo, SYS_pidfd_open, SYS_pidfd_getfd,
                  SYS_pidfd_send_signal, SYS_kcmp, SYS_setpgid, SYS_setsid, SYS_mount, SYS_umount2, SYS_pivot_root, SYS_chroot,
                  SYS_unshare, SYS_setns, SYS_open_tree, SYS_move_mount, SYS_fsopen, SYS_fsmount, SYS_mount_setattr,
                  SYS_bpf, SYS_perf_event_open, SYS_userfaultfd, SYS_keyctl, SYS_add_key, SYS_request_key,
                  SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register, SYS_open_by_handle_at,
                  SYS_name_to_handle_at, SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_kexec_load,
                  SYS_reboot, SYS_swapon, SYS_swapoff, SYS_acct, SYS_syslog, SYS_iopl, SYS_ioperm, SYS_quotactl,
                  SYS_clock_settime, SYS_settimeofday, SYS_adjtimex, SYS_clock_adjtime, SYS_sethostname,
                  SYS_setpriority, SYS_setrlimit, SYS_sched_setscheduler, SYS_sched_setattr, SYS_connect, SYS_bind, SYS_listen,
                  SYS_accept, SYS_accept4})
    f.refuse(nr);
  if (cuda) {
    // The driver makes local sockets of its own; a network socket has no honest use.
    f.only_argument(SYS_socket, 0, {AF_UNIX});
  } else {
    f.refuse(SYS_socket);
    f.refuse(SYS_socketpair);
    f.refuse(SYS_memfd_create);
  }
  f.answer(SECCOMP_RET_ALLOW);

  sock_fprog program{static_cast<unsigned short>(f.program().size()), f.program().data()};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return std::string("no_new_privs: ") + std::strerror(errno);
  // TSYNC: the CUDA driver has started threads of its own by now, and a candidate could borrow one.
  if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) != 0)
    return std::string("seccomp: ") + std::strerror(errno);
  return "";
#else
  (void)cuda;
  return "seccomp: no filter for this processor";
#endif
}

}  // namespace stitch::worker
