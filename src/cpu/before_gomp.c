// SPDX-License-Identifier: Apache-2.0
// Threads that wait for each other spin before they sleep: libgomp's for about 15 ms, in which a core that another
// program wants is taken from it, and this one's next region waits for a time slice. A step took 5 to 40 times as long on
// a busy machine, and no less on a quiet one, than when they spin for 40 us. libgomp reads how long from the environment,
// once, when it is loaded, and gives no other way to say it: so this is a library of its own, libpaoding_before_gomp.so.
// libpaoding needs it as the last of its libraries, and the loader initializes those it found last first. libpaoding
// then takes the variable away: nobody else sees it. Where libgomp was there already, it stays as it is.
#include <stdlib.h>
#include <sys/single_threaded.h>

static int is_set;

__attribute__((constructor)) static void set_spin_count(void) {
  if (!__libc_single_threaded || getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY")) return;
  is_set = setenv("GOMP_SPINCOUNT", "2000", 0) == 0;
}

__attribute__((visibility("default"))) void paoding_after_gomp(void) {
  if (is_set) unsetenv("GOMP_SPINCOUNT");
  is_set = 0;
}
