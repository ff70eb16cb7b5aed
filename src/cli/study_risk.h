/* The risk of spot in `tidemill study`: what is known of offers, learning a user's own records, trying predictions. */
#ifndef TM_CLI_STUDY_RISK_H
#define TM_CLI_STUDY_RISK_H

#include "cli/commands.h"

/* --risk and --bands: what is known of the offers of the catalogue (bands: of those with an interruption band). */
int tm_study_known(struct tm_cli *cli, bool bands, struct tm_error *e);

/* The pools that the files record, each a type at a place, as the files, the options and the files' names describe
 * them: added to the user's own knowledge; or predicted without what is known of them, beside what was recorded. */
int tm_study_learn(struct tm_cli *cli, double cap_s, struct tm_error *e);
int tm_study_evaluate(struct tm_cli *cli, double cap_s, struct tm_error *e);

#endif
