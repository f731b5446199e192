/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the two halves of the hot path share: queue.c and submit.c.
 */
#ifndef POLLUX_QUEUE_H
#define POLLUX_QUEUE_H

#include "pollux_blk.h"

/* How long a polled request may lie without a poll: within twice this it is completed. */
#define POLLUX_WATCH max(HZ / 100, 1)

#ifdef POLLUX_BLK_TEST
extern bool pollux_quiet_while_polled;
#else
#define pollux_quiet_while_polled false
#endif

/* These are called under the queue's lock. */
bool pollux_needs_calls(const struct pollux_queue *queue);
bool pollux_arm(struct pollux_queue *queue);
unsigned int pollux_take(struct pollux_queue *queue, struct pollux_chain *others,
			 struct pollux_chain *for_tasks, unsigned int most);
bool pollux_take_urgent(struct pollux_queue *queue);

/* These are not. */
void pollux_call_worker(struct pollux_queue *queue);
void pollux_complete_request(struct request *rq);
int pollux_poll(struct blk_mq_hw_ctx *hctx, struct io_comp_batch *batch);

#endif
