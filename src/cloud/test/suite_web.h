/* Requests over HTTP as points at which a driver dies in the common suite (cloud_suite.h): before each is sent, and
 * after each has been answered. To be included by one file of a test program: these stand before libcurl's own. */
#ifndef TM_CLOUD_TEST_SUITE_WEB_H
#define TM_CLOUD_TEST_SUITE_WEB_H

#include "cloud/test/cloud_suite.h"

#include <curl/curl.h>
#include <dlfcn.h>

typedef CURLMcode (*suite_multi_f)(CURLM *multi, CURL *easy);

static CURLMcode suite_web_call(const char *name, CURLM *multi, CURL *easy)
{
    suite_multi_f real = NULL;
    *(void **)&real = dlsym(RTLD_NEXT, name); /* as POSIX has it: a function by its address */
    assert_non_null(real);
    suite_point();
    return real(multi, easy);
}

CURLMcode curl_multi_add_handle(CURLM *multi, CURL *easy)
{
    return suite_web_call("curl_multi_add_handle", multi, easy);
}

CURLMcode curl_multi_remove_handle(CURLM *multi, CURL *easy)
{
    return suite_web_call("curl_multi_remove_handle", multi, easy);
}

#endif
