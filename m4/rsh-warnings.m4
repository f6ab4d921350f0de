dnl SPDX-License-Identifier: Apache-2.0
# RSH_WARNINGS: probes each warning flag on its own and collects those that the
# compiler knows in WARN_CFLAGS; --enable-werror makes them errors.
AC_DEFUN([RSH_WARNINGS], [
  AC_ARG_ENABLE([werror],
    [AS_HELP_STRING([--enable-werror], [treat warnings as errors])],
    [], [enable_werror=no])
  WARN_CFLAGS=""
  for flag in -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
      -Wold-style-definition -Wpointer-arith -Wwrite-strings -Wcast-qual \
      -Wformat=2 -Wundef -Wvla -Wlogical-op -Wduplicated-cond \
      -Wnull-dereference -Wimplicit-fallthrough -Wno-missing-field-initializers; do
    AS_VAR_PUSHDEF([cache], [rsh_cv_cflag_$flag])
    AC_CACHE_CHECK([whether $CC knows $flag], [cache], [
      saved_CFLAGS="$CFLAGS"
      CFLAGS="$CFLAGS -Werror $flag"
      AC_COMPILE_IFELSE([AC_LANG_PROGRAM([], [])],
        [AS_VAR_SET([cache], [yes])], [AS_VAR_SET([cache], [no])])
      CFLAGS="$saved_CFLAGS"])
    AS_VAR_IF([cache], [yes], [WARN_CFLAGS="$WARN_CFLAGS $flag"])
    AS_VAR_POPDEF([cache])
  done
  AS_IF([test "x$enable_werror" = xyes], [WARN_CFLAGS="$WARN_CFLAGS -Werror"])
  AC_SUBST([WARN_CFLAGS])
])
