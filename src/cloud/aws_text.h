/* What EC2 says, read: its VMs, its prices, and what a renter does when it refuses. */
#ifndef TM_CLOUD_AWS_TEXT_H
#define TM_CLOUD_AWS_TEXT_H

#include "cloud/vms.h"
#include "web/xml.h"

enum tm_vm__remedy tm_aws__remedy_of(const char *code);
/* What the user is told to do; "": nothing. */
const char *tm_aws__advice(const char *code);
/* What AWS's VMs live and cost by. */
extern const struct tm_vm__rules tm_aws__rules;

/* An element of instancesSet. False: it has no id. */
bool tm_aws__read_vm(const struct tm_xml *item, struct tm_vm__row *out);
/* An element of spotPriceHistorySet. False: it is none. */
bool tm_aws__read_price(const struct tm_xml *item, struct tm_vm__price *out);

/* Of an answer of DescribeImages: the newest, and its root device. False: it has none. */
bool tm_aws__read_image(const struct tm_xml *root, char image[64], char root_device[32]);

#endif
