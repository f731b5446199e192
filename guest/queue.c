// SPDX-License-Identifier: GPL-2.0
/*
 * The hot path's return: callbacks, interrupt, poll. The way there is in submit.c.
 *
 * Only sleepers are woken. Callbacks of a queue are needed while an interrupt-driven request is in
 * the ring, or while somebody may wait for a free slot; otherwise they are off. Whoever takes
 * completions keeps them off, takes until nothing is found, and only then arms: turns them on, and
 * looks once more.
 *
 * Polled requests never depend on their poller alone, which may be stopped: somebody else who finds
 * them parks them for it, and the queue's watch completes what nobody has polled for.
 */
#include <linux/cpumask.h>
#include <linux/interrupt.h>
#include <linux/module.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>

#include "queue.h"
#include "trace.h"

/* How many requests one interrupt completes before the worker goes on: as many as NAPI. */
#define BUDGET 64

/*
 * How often in a row polls may take what an interrupt was raised for. One that finds nothing counts as unhandled, and
 * the kernel turns an interrupt off of which 99.9 % are (kernel/irq/spurious.c).
 */
#define STOLEN_MOST 256

#ifdef POLLUX_BLK_TEST
/* The rule of the RFC of 2021, under which a stopped poller delays everybody else: tests show it. */
bool pollux_quiet_while_polled;
module_param_named(quiet_while_polled, pollux_quiet_while_polled, bool, 0644);
MODULE_PARM_DESC(quiet_while_polled, "Callbacks are off while any polled request is in flight (only to show the fault)");
#endif

/* --- callbacks; all of it under the queue's lock ------------------------------------------------ */

/* With all tags in use, a task may wait for one. */
static bool has_no_tag(const struct pollux_queue *queue)
{
	return queue->polled + queue->waiting >= queue->depth;
}

bool pollux_needs_calls(const struct pollux_queue *queue)
{
	if (pollux_quiet_while_polled && queue->polled)
		return false;
	return queue->plain || queue->starved || has_no_tag(queue);
}

/* Turns callbacks on. False: there is something to be taken, of which no callback will tell. */
bool pollux_arm(struct pollux_queue *queue)
{
	if (!queue->armed) {
		count_event_locked(queue, POLLUX_ARMED);
		trace_pollux_blk_callbacks(queue, true);
	}
	queue->armed = true;
	return virtqueue_enable_cb(queue->vq);
}

static void disarm(struct pollux_queue *queue)
{
	if (!queue->armed)
		return;
	count_event_locked(queue, POLLUX_DISARMED);
	trace_pollux_blk_callbacks(queue, false);
	queue->armed = false;
	virtqueue_disable_cb(queue->vq);
}

/* --- what the device has completed --------------------------------------------------------------- */

/*
 * Adds to @chain what was taken. The worker completes a sleeper's request that is parked, and frees a tag if there is
 * none.
 */
static void give(struct pollux_queue *queue, struct pollux_chain *chain, struct pollux_request *request)
{
	chain_add(chain, request);
	if (chain != &queue->parked)
		return;
	queue->waiting++;
	if (!request->polled || has_no_tag(queue))
		queue->urgent = true;
	count_event_locked(queue, POLLUX_PARKED);
	trace_pollux_blk_parked(queue, queue->waiting);
}

/*
 * Takes at most @most requests off the ring: those that must be completed in a task to @for_tasks, the
 * others to @others. Either may be the queue's @parked.
 */
unsigned int pollux_take(struct pollux_queue *queue, struct pollux_chain *others,
			 struct pollux_chain *for_tasks, unsigned int most)
{
	struct pollux_request *request;
	unsigned int count, length;

	for (count = 0; count < most; count++) {
		request = virtqueue_get_buf(queue->vq, &length);
		if (!request)
			break;
		WRITE_ONCE(queue->taken, queue->taken + 1);
		if (request->polled)
			queue->polled--;
		else
			queue->plain--;
		give(queue, request->in_task ? for_tasks : others, request);
	}
	if (count && queue->starved) {
		queue->starved = false;
		queue->room = true;
	}
	return count;
}

/* What taking requests off the ring has left to do. */
void pollux_collect(struct pollux_queue *queue, struct pollux_duties *duties)
{
	duties->worker |= queue->urgent;
	duties->room |= queue->room;
	queue->urgent = false;
	queue->room = false;
	duties->broken |= !queue->stopped && virtqueue_is_broken(queue->vq);
}

/*
 * Does it, in the RCU section in which the lock was held: the end of the queue waits for that, so the virtqueue is
 * there, and no work is left behind. The block layer does not run a queue again by itself after the end of a batch, in
 * which polls end requests.
 */
void pollux_discharge(struct pollux_queue *queue, const struct pollux_duties *duties)
{
	if (duties->kick)
		pollux_kick(queue);
	if (duties->watch)
		queue_delayed_work(pollux_workers, &queue->watch, POLLUX_WATCH);
	if (duties->worker)
		mod_delayed_work(pollux_workers, &queue->watch, 0);
	if (duties->room)
		blk_mq_run_hw_queues(queue->disk->gendisk->queue, true);
	if (duties->broken)
		mod_delayed_work(pollux_workers, &queue->disk->broken_work, 0);
}

/* Takes all that is parked. */
static unsigned int unpark(struct pollux_queue *queue, struct pollux_chain *done)
{
	struct pollux_request *request;
	unsigned int count = queue->waiting;

	while ((request = chain_pop(&queue->parked)))
		chain_add(done, request);
	queue->waiting = 0;
	queue->urgent = false;
	return count;
}

void pollux_complete_request(struct request *rq)
{
	struct pollux_request *request = blk_mq_rq_to_pdu(rq);

	pollux_unprepare(rq);
	blk_mq_end_request(rq, pollux_status(request));
}

static void complete_batch(struct io_comp_batch *batch)
{
	struct request *rq;

	rq_list_for_each(&batch->req_list, rq)
		pollux_unprepare(rq);
	blk_mq_end_request_batch(batch);
}

/* Completes what was taken in an interrupt, without the lock. */
static void complete_in_interrupt(struct pollux_chain *done)
{
	struct pollux_request *request;

	while ((request = chain_pop(done)))
		blk_mq_complete_request(blk_mq_rq_from_pdu(request));
}

/* Completes what was taken in a task, without the lock: into @batch what the poller's task has submitted. */
static void complete_in_task(struct pollux_chain *done, struct io_comp_batch *batch)
{
	struct pollux_request *request;
	struct request *rq;

	while ((request = chain_pop(done))) {
		rq = blk_mq_rq_from_pdu(request);
		/* What has failed is never put into a batch: some kernels (6.12.16) would end it as a success. */
		if (request->polled && pollux_status(request) == BLK_STS_OK &&
		    blk_mq_add_to_batch(rq, batch, false, complete_batch))
			continue;
		if (request->in_task) {
			blk_mq_set_request_complete(rq);
			pollux_complete_request(rq);
			continue;
		}
		/* A softirq, if the block layer wants one for that, comes now, not when its thread gets the CPU. */
		local_bh_disable();
		blk_mq_complete_request(rq);
		local_bh_enable();
	}
}

/* Starts to look after completions, with callbacks off. False: somebody else does. */
static bool begin_service(struct pollux_queue *queue, enum pollux_server server)
{
	if (queue->stopped || (queue->server != POLLUX_NOBODY && queue->server != server))
		return false;
	queue->server = server;
	disarm(queue);
	return true;
}

/* Stops to look after completions, if there are none, and sees to it that somebody is told of the next one. */
static bool end_service(struct pollux_queue *queue)
{
	if (!queue->stopped && pollux_needs_calls(queue) && !pollux_arm(queue)) {
		disarm(queue);
		return false;
	}
	queue->server = POLLUX_NOBODY;
	return true;
}

/**
 * pollux_interrupt() - the device's callback
 * @vq: which of its queues it has used
 */
void pollux_interrupt(struct virtqueue *vq)
{
	struct pollux_disk *disk = vq->vdev->priv;
	struct pollux_queue *queue = &disk->queues[vq->index];
	unsigned int count, left = BUDGET;
	struct pollux_duties duties = {};
	struct pollux_chain done;
	struct pollux_hold hold;
	bool ended = false;

	count_event(queue, POLLUX_INTERRUPTS);
	chain_init(&done);
	queue_lock(queue, &hold);
	queue->stolen = 0;
	if (!begin_service(queue, POLLUX_INTERRUPT)) {
		queue_unlock(queue, &hold);
		count_event(queue, POLLUX_IDLE_INTERRUPTS);
		trace_pollux_blk_interrupt(queue, 0);
		return;
	}
	for (;;) {
		count = pollux_take(queue, &done, &queue->parked, left);
		left -= count;
		if (!count)
			ended = end_service(queue);
		if (!ended && !left)
			queue->server = POLLUX_WORKER;
		pollux_collect(queue, &duties);
		queue_unlock(queue, &hold);
		complete_in_interrupt(&done);
		if (ended || !left)
			break;
		queue_lock(queue, &hold);
	}
	if (left == BUDGET)
		count_event(queue, POLLUX_IDLE_INTERRUPTS);
	trace_pollux_blk_interrupt(queue, BUDGET - left);
	if (!ended) {
		count_event(queue, POLLUX_OVER_BUDGET);
		duties.worker = true;
	}
	pollux_discharge(queue, &duties);
}

/* The worker's turn with what is in the ring: takes some, or finds none and ends. */
static unsigned int serve_by_worker(struct pollux_queue *queue, struct pollux_chain *done, bool *ended)
{
	bool told = queue->server == POLLUX_WORKER;
	unsigned int count, plain = queue->plain;

	if (!begin_service(queue, POLLUX_WORKER))
		return 0;
	count = pollux_take(queue, done, done, BUDGET);
	if (!told)
		this_cpu_add(queue->counters->count[POLLUX_OVERDUE], plain - queue->plain);
	*ended = !count && end_service(queue);
	return count;
}

/**
 * pollux_watch() - goes on where an interrupt had to stop; completes what is parked, and what nobody has polled for
 * @work: the queue's @watch
 */
void pollux_watch(struct work_struct *work)
{
	struct pollux_queue *queue = container_of(to_delayed_work(work), struct pollux_queue, watch);
	struct pollux_duties duties;
	struct pollux_chain done;
	bool serves, ended;
	struct pollux_hold hold;
	unsigned int count;

	chain_init(&done);
	do {
		duties = (struct pollux_duties){};
		count = 0;
		ended = true;
		rcu_read_lock();
		queue_lock(queue, &hold);
		/* A poller that is at it needs no help. */
		serves = queue->server == POLLUX_WORKER || !queue->polled_lately;
		queue->polled_lately = false;
		if (serves)
			count = serve_by_worker(queue, &done, &ended);
		count += unpark(queue, &done);
		/* An interrupt that has not come by now does not keep polls waiting. */
		if (queue->stolen >= STOLEN_MOST)
			queue->stolen = 0;
		duties.watch = queue->polled && !queue->stopped && !pollux_quiet_while_polled;
		queue->watched = duties.watch;
		pollux_collect(queue, &duties);
		queue_unlock(queue, &hold);
		pollux_discharge(queue, &duties);
		rcu_read_unlock();
		this_cpu_add(queue->counters->count[POLLUX_BY_WORKER], count);
		complete_in_task(&done, NULL);
		cond_resched();
	} while (!ended);
}

/* Is there something to be taken? A look without the lock, and without a barrier: the next one will see it. */
static bool look(struct pollux_queue *queue)
{
	const __virtio16 *used;
	bool found = true;

	if (READ_ONCE(queue->parked.first))
		return true;
	rcu_read_lock();
	used = rcu_dereference(queue->used);
	if (used)
		found = virtio16_to_cpu(queue->disk->vdev, READ_ONCE(*used)) != READ_ONCE(queue->taken);
	rcu_read_unlock();
	return found;
}

/* What a poll takes. Now and then it leaves to an interrupt that is on its way what that was raised for. */
static unsigned int take_for_poll(struct pollux_queue *queue, struct pollux_chain *plain, struct pollux_chain *polled)
{
	unsigned int count;

	if (queue->stopped || (queue->armed && queue->stolen >= STOLEN_MOST))
		return 0;
	count = pollux_take(queue, plain, polled, UINT_MAX);
	if (count && queue->armed)
		queue->stolen++;
	if (queue->armed && !pollux_needs_calls(queue))
		disarm(queue);
	return count;
}

/* blk_mq_ops.poll */
int pollux_poll(struct blk_mq_hw_ctx *hctx, struct io_comp_batch *batch)
{
	struct pollux_queue *queue = queue_of(hctx);
	struct pollux_duties duties = {};
	struct pollux_chain plain, polled;
	struct pollux_hold hold;
	unsigned int found;

	if (!look(queue)) {
		count_event(queue, POLLUX_POLLS_EMPTY);
		return 0;
	}
	chain_init(&plain);
	chain_init(&polled);
	rcu_read_lock();
	/* Of a packed ring we see no index: look under the lock, unless somebody else does. */
	if (READ_ONCE(queue->packed)) {
		if (!queue_trylock(queue, &hold)) {
			rcu_read_unlock();
			return 0;
		}
	} else {
		queue_lock(queue, &hold);
	}
	found = unpark(queue, &polled);
	found += take_for_poll(queue, &plain, &polled);
	if (found)
		queue->polled_lately = true;
	count_event_locked(queue, found ? POLLUX_POLLS_FOUND : POLLUX_POLLS_EMPTY);
	pollux_collect(queue, &duties);
	queue_unlock(queue, &hold);
	pollux_discharge(queue, &duties);
	rcu_read_unlock();
	/* Others sleep until theirs are completed. */
	complete_in_task(&plain, NULL);
	complete_in_task(&polled, batch);
	trace_pollux_blk_poll(queue, found);
	return found;
}
