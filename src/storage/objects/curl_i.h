/* SPDX-License-Identifier: Apache-2.0 */
/* storage/objects/curl_i.h - the functions of libcurl that this room calls.
 * The library is loaded when the first address is opened, so that those who
 * mount local files do not wait for it, nor need to have it. */
#pragma once

#include <curl/curl.h>

#include "rsh/util/error.h"

/* The library is loaded at run time and may be newer than its header here. */
#if !HAVE_DECL_CURLOPT_PROTOCOLS_STR
#define CURLOPT_PROTOCOLS_STR ((CURLoption)10318) /* 7.85 */
#define CURLOPT_REDIR_PROTOCOLS_STR ((CURLoption)10319)
#endif
#if !HAVE_DECL_CURLOPT_QUICK_EXIT
#define CURLOPT_QUICK_EXIT ((CURLoption)322) /* 7.87 */
#endif
/* Older libraries need these options, but newer headers warn of their names. */
#define RSH_CURLOPT_PROTOCOLS ((CURLoption)181)
#define RSH_CURLOPT_CA_CACHE_TIMEOUT ((CURLoption)321) /* 7.87 */
#define RSH_CURLOPT_CAINFO_BLOB ((CURLoption)40309)    /* 7.77 */
#define RSH_CURLOPT_REDIR_PROTOCOLS ((CURLoption)182)
/* CURLE_PEER_FAILED_VERIFICATION, and the separate code that libcurl before
 * 7.62 had for names of hosts; its headers gave that the name of this one. */
#define RSH_CURLE_UNVERIFIED ((CURLcode)60)
#define RSH_CURLE_UNVERIFIED_OLD ((CURLcode)51)

#define RSH_CURL_FUNCTIONS(F) \
	F(global_init_mem) \
	F(version_info) \
	F(slist_append) \
	F(slist_free_all) \
	F(easy_init) \
	F(easy_reset) \
	F(easy_cleanup) \
	F(easy_setopt) \
	F(easy_getinfo) \
	F(easy_strerror) \
	F(multi_init) \
	F(multi_cleanup) \
	F(multi_setopt) \
	F(multi_add_handle) \
	F(multi_remove_handle) \
	F(multi_perform) \
	F(multi_wait) \
	F(multi_info_read)

struct object_curl {
#define RSH_CURL_MEMBER(name) __typeof__(curl_##name) *name;
	RSH_CURL_FUNCTIONS(RSH_CURL_MEMBER)
#undef RSH_CURL_MEMBER
};

/* It is filled in by rsh_object_curl_start(), and nothing is called before. */
extern struct object_curl rsh_curl;

/* Loads libcurl and starts it, once a process; any thread may call this.  0 or
 * -errno with a sentence. */
int rsh_object_curl_start(struct rsh_error *err);
