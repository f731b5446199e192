// SPDX-License-Identifier: GPL-2.0
/*
 * The hot path's first half: requests are put on the ring, and the device is kicked.
 *
 * Whether to kick is decided under the queue's lock, which the decision reads and moves the ring's state for. The kick
 * itself, an exit of the virtual machine, is made after the lock is released; a batch is one kick.
 */
#include <linux/delay.h>
#include <linux/module.h>

#include "queue.h"
#include "trace.h"

static bool kick_under_lock;
module_param(kick_under_lock, bool, 0644);
MODULE_PARM_DESC(kick_under_lock, "Notify the device before the queue's lock is released (to measure with)");

#ifdef POLLUX_BLK_TEST
unsigned int pollux_slow_us;
module_param_named(slow_us, pollux_slow_us, uint, 0644);
MODULE_PARM_DESC(slow_us, "Wait so long before callbacks are turned on for a request that is on the ring (to show what a fast device does meanwhile)");
#endif

/* Will a request that finds no room in the ring ever find some? Indirect descriptors only lack memory at the moment. */
static bool fits(const struct pollux_queue *queue)
{
	return queue->plain || queue->polled || virtio_has_feature(queue->vq->vdev, VIRTIO_RING_F_INDIRECT_DESC);
}

/* Puts a prepared request on the ring; under the lock. */
static int put(struct pollux_queue *queue, struct pollux_request *request)
{
	int error;

	if (queue->stopped)
		return -EIO;
	error = pollux_add(queue, request);
	/* So a packed ring says that it cannot map memory at the moment. */
	if (error == -EIO && !virtqueue_is_broken(queue->vq))
		return -ENOMEM;
	if (error == -ENOSPC) {
		if (!fits(queue))
			return -EIO;
		queue->starved = true;
	}
	if (error)
		return error;
	if (request->polled) {
		queue->polled++;
		count_event_locked(queue, POLLUX_SUBMITTED_POLLED);
	} else {
		queue->plain++;
	}
	count_event_locked(queue, POLLUX_SUBMITTED);
	trace_pollux_blk_submit(queue, request->polled);
	return 0;
}

/* Tells the device of what is new on the ring. A device that has gone cannot be told. */
void pollux_kick(struct pollux_queue *queue)
{
	count_event(queue, POLLUX_KICKS);
	trace_pollux_blk_kick(queue, kick_under_lock);
	if (!virtqueue_notify(queue->vq))
		mod_delayed_work(pollux_workers, &queue->disk->broken_work, 0);
}

/* After requests were put on the ring, under the lock: who is told of their completion, and the device of them? */
static struct pollux_duties announce(struct pollux_queue *queue, bool kick)
{
	struct pollux_duties duties = {};

	if (queue->stopped)
		return duties;
	/* Whoever serves the queue arms it when it stops. */
	if (!queue->armed && queue->server == POLLUX_NOBODY && pollux_needs_calls(queue)) {
		if (pollux_slow_us)
			udelay(pollux_slow_us);
		/* In this place nothing may be completed: its owner may submit at that, and so on. */
		while (!pollux_arm(queue) && pollux_take(queue, &queue->parked, &queue->parked, UINT_MAX))
			;
	}
	pollux_collect(queue, &duties);
	/* A poller that is stopped does not come for what was parked, either. */
	duties.watch = (queue->polled || queue->waiting) && !queue->watched && !pollux_quiet_while_polled;
	queue->watched |= duties.watch;
	duties.kick = kick && virtqueue_kick_prepare(queue->vq);
	if (duties.kick && kick_under_lock) {
		pollux_kick(queue);
		duties.kick = false;
	}
	return duties;
}

/* blk_mq_ops.queue_rq */
static blk_status_t queue_rq(struct blk_mq_hw_ctx *hctx, const struct blk_mq_queue_data *data)
{
	struct pollux_queue *queue = queue_of(hctx);
	struct pollux_duties duties;
	struct pollux_hold hold;
	blk_status_t status;
	int error;

	status = pollux_prepare(queue, data->rq);
	if (status)
		return status;
	queue_lock(queue, &hold);
	error = put(queue, blk_mq_rq_to_pdu(data->rq));
	duties = announce(queue, data->last || error);
	queue_unlock(queue, &hold);
	pollux_discharge(queue, &duties);
	if (!error)
		return BLK_STS_OK;
	pollux_unprepare(data->rq);
	/*
	 * Not BLK_STS_DEV_RESOURCE, with which the block layer waits for the end of another request: it does not notice
	 * the end of a batch, and there may have been room before it begins to wait.
	 */
	return error == -ENOSPC || error == -ENOMEM ? BLK_STS_RESOURCE : BLK_STS_IOERR;
}

/* blk_mq_ops.commit_rqs: the batch has ended early. */
static void commit_rqs(struct blk_mq_hw_ctx *hctx)
{
	struct pollux_queue *queue = queue_of(hctx);
	struct pollux_duties duties;
	struct pollux_hold hold;

	queue_lock(queue, &hold);
	duties = announce(queue, true);
	queue_unlock(queue, &hold);
	pollux_discharge(queue, &duties);
}

/* Puts prepared requests of one queue on its ring, with one kick. Those that find no room come again, one by one. */
static void submit_chain(struct pollux_queue *queue, struct pollux_chain *batch)
{
	struct pollux_request *request;
	struct pollux_duties duties;
	struct pollux_chain refused;
	struct pollux_hold hold;
	struct request *rq;

	chain_init(&refused);
	queue_lock(queue, &hold);
	while ((request = chain_pop(batch))) {
		if (put(queue, request))
			chain_add(&refused, request);
	}
	duties = announce(queue, true);
	queue_unlock(queue, &hold);
	pollux_discharge(queue, &duties);
	while ((request = chain_pop(&refused))) {
		rq = blk_mq_rq_from_pdu(request);
		pollux_unprepare(rq);
		blk_mq_requeue_request(rq, true);
	}
}

/* blk_mq_ops.queue_rqs: what is left on @list comes to queue_rq(). */
static void queue_rqs(COMPAT_RQ_LIST *list)
{
	struct pollux_queue *queue = NULL, *next;
	struct pollux_chain batch;
	COMPAT_RQ_LIST rest;
	struct request *rq;

	compat_rq_list_init(&rest);
	chain_init(&batch);
	while ((rq = rq_list_pop(list))) {
		next = queue_of(rq->mq_hctx);
		if (queue && next != queue)
			submit_chain(queue, &batch);
		queue = next;
		compat_set_tag(rq);
		if (pollux_prepare(queue, rq))
			compat_rq_list_add(&rest, rq);
		else
			chain_add(&batch, blk_mq_rq_to_pdu(rq));
	}
	if (queue)
		submit_chain(queue, &batch);
	*list = rest;
}

/* blk_mq_ops.map_queues: default and polled requests use the same queues. */
static void map_queues(struct blk_mq_tag_set *set)
{
	struct pollux_disk *disk = set->driver_data;
	struct blk_mq_queue_map *plain = &set->map[HCTX_TYPE_DEFAULT];
	struct blk_mq_queue_map *polled = &set->map[HCTX_TYPE_POLL];

	plain->nr_queues = disk->queue_count;
	plain->queue_offset = 0;
	compat_map_queues(plain, disk->vdev);
	set->map[HCTX_TYPE_READ].nr_queues = 0;
	polled->nr_queues = plain->nr_queues;
	polled->queue_offset = 0;
	memcpy(polled->mq_map, plain->mq_map, nr_cpu_ids * sizeof(*plain->mq_map));
}

const struct blk_mq_ops pollux_mq_ops = {
	.queue_rq = queue_rq,
	.queue_rqs = queue_rqs,
	.commit_rqs = commit_rqs,
	.complete = pollux_complete_request,
	.poll = pollux_poll,
	.map_queues = map_queues,
};
