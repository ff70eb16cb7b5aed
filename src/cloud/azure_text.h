/* What Azure's Resource Manager says, read: VMs and what goes with them, operations, prices, and what a renter does
 * when it refuses. */
#ifndef TM_CLOUD_AZURE_TEXT_H
#define TM_CLOUD_AZURE_TEXT_H

#include "base/doc.h"
#include "cloud/vm_user_data.h"

enum tm_vm__remedy tm_azure__remedy_of(const char *code);
/* What the user is told to do; "": nothing. */
const char *tm_azure__advice(const char *code);
/* What Azure's VMs live and cost by. */
extern const struct tm_vm__rules tm_azure__rules;
/* Needs the words `arm` (the Resource Manager's endpoint), `audience` (whom its tokens are for) and `identity` ("":
 * none): a VM that shut down would be billed on, so it asks the Resource Manager to delete it, as its own identity. Its
 * addresses need `public_address`: the metadata service does not tell one of the Standard kind. */
extern const struct tm_vm__guest tm_azure__guest;

/* A VM that is `name`'s value of a list, or an answer. `run`: its tag, "": none. False: it is no VM. */
bool tm_azure__read_vm(const json_t *item, struct tm_vm__row *out, char run[32]);
/* Of a VM's status: does it run? The name, as of the VM. False: it is none, or says nothing. */
bool tm_azure__read_power(const json_t *item, char name[TM_VM_ID_MAX], bool *out_stopped);
/* The VM that an interface, a disk or an address was made for: its name without the ending ("-nic"). False: it is
 * none of ours. */
bool tm_azure__read_part(const json_t *item, const char *ending, char vm[TM_VM_ID_MAX]);
/* The private address of an interface; "": it has none. */
void tm_azure__read_address(const json_t *nic, char out[64]);
/* A list's page: its items (borrowed from root), and where the next is ("": nowhere). -TM_EINPUT: it is no list. */
int tm_azure__read_page(const json_t *root, const json_t **out_items, const char **out_next, struct tm_error *e);

enum tm_azure__progress { TM_AZURE_UNDER_WAY, TM_AZURE_DONE, TM_AZURE_FAILED };
/* What an operation's URL says. */
enum tm_azure__progress tm_azure__read_operation(int status, const json_t *root);

/* The lowest price of a spot VM of this type at this location in a page of retail prices; NaN: none. */
double tm_azure__read_spot_price(const json_t *root, const char *type, const char *location);

#endif
