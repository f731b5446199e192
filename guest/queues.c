// SPDX-License-Identifier: GPL-2.0
/*
 * How queues come and go.
 */
#include <linux/interrupt.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>

#include "pollux_blk.h"

static unsigned int num_request_queues;
module_param(num_request_queues, uint, 0444);
MODULE_PARM_DESC(num_request_queues, "At most so many queues for a disk; 0: as many as CPUs can use");

static unsigned int queue_depth;
module_param(queue_depth, uint, 0444);
MODULE_PARM_DESC(queue_depth, "At most so many requests in flight on a queue; 0: as many as its ring holds");

struct workqueue_struct *pollux_workers;

/**
 * pollux_queues_alloc() - as many queues as the device has, and CPUs can use
 * @disk: whose @queues are made, without virtqueues
 *
 * Return: 0 or an error.
 */
int pollux_queues_alloc(struct pollux_disk *disk)
{
	struct pollux_queue *queue;
	unsigned int index;
	u16 count;

	if (virtio_cread_feature(disk->vdev, VIRTIO_BLK_F_MQ, struct virtio_blk_config, num_queues, &count))
		count = 1;
	if (!count) {
		dev_err(&disk->vdev->dev, "it has no queue\n");
		return -EINVAL;
	}
	disk->queue_count = min_t(unsigned int, count, nr_cpu_ids);
	if (num_request_queues)
		disk->queue_count = min(disk->queue_count, num_request_queues);
	disk->queues = kcalloc(disk->queue_count, sizeof(*disk->queues), GFP_KERNEL);
	if (!disk->queues)
		return -ENOMEM;
	for (index = 0; index < disk->queue_count; index++) {
		queue = &disk->queues[index];
		queue->disk = disk;
		queue->stopped = true;
		spin_lock_init(&queue->lock);
		chain_init(&queue->parked);
		INIT_DELAYED_WORK(&queue->watch, pollux_watch);
		snprintf(queue->name, sizeof(queue->name), "req.%u", index);
		queue->counters = alloc_percpu(struct pollux_counters);
		if (!queue->counters) {
			pollux_queues_free(disk);
			return -ENOMEM;
		}
	}
	return 0;
}

/**
 * pollux_queues_free() - the reverse of pollux_queues_alloc()
 * @disk: whose queues are stopped
 */
void pollux_queues_free(struct pollux_disk *disk)
{
	unsigned int index;

	for (index = 0; index < disk->queue_count; index++)
		free_percpu(disk->queues[index].counters);
	kfree(disk->queues);
	disk->queues = NULL;
}

/**
 * pollux_queues_find() - gives the queues their virtqueues, with callbacks off
 * @disk: whose queues are stopped
 *
 * Return: 0 or an error.
 */
int pollux_queues_find(struct pollux_disk *disk)
{
	struct pollux_queue *queue;
	struct virtqueue **vqs;
	unsigned int index;
	int error;

	vqs = kcalloc(disk->queue_count, sizeof(*vqs), GFP_KERNEL);
	if (!vqs)
		return -ENOMEM;
	error = compat_find_vqs(disk, vqs);
	if (error)
		goto out;
	for (index = 0; index < disk->queue_count; index++) {
		queue = &disk->queues[index];
		spin_lock_irq(&queue->lock);
		queue->vq = vqs[index];
		queue->taken = 0;
		queue->stolen = 0;
		queue->armed = false;
		queue->starved = false;
		queue->server = POLLUX_NOBODY;
		queue->stopped = false;
		virtqueue_disable_cb(queue->vq);
		queue->packed = virtio_has_feature(disk->vdev, VIRTIO_F_RING_PACKED);
		if (!queue->packed)
			rcu_assign_pointer(queue->used, &virtqueue_get_vring(queue->vq)->used->idx);
		spin_unlock_irq(&queue->lock);
	}
	disk->has_vqs = true;
out:
	kfree(vqs);
	return error;
}

/**
 * pollux_queues_lose() - the reverse of pollux_queues_find(), if that has succeeded
 * @disk: whose queues are closed
 */
void pollux_queues_lose(struct pollux_disk *disk)
{
	if (disk->has_vqs)
		disk->vdev->config->del_vqs(disk->vdev);
	disk->has_vqs = false;
}

/**
 * pollux_queues_depth() - how many requests a queue can hold
 * @disk: whose queues have virtqueues
 *
 * Return: at least 1. Without indirect descriptors it is a compromise: a request takes two and one for each segment.
 */
unsigned int pollux_queues_depth(struct pollux_disk *disk)
{
	unsigned int index, depth = UINT_MAX;

	for (index = 0; index < disk->queue_count; index++)
		depth = min(depth, disk->queues[index].vq->num_free);
	if (!virtio_has_feature(disk->vdev, VIRTIO_RING_F_INDIRECT_DESC))
		depth /= 3;
	if (queue_depth)
		depth = min(depth, queue_depth);
	return clamp(depth, 1u, (unsigned int)BLK_MQ_MAX_DEPTH);
}

/**
 * pollux_queues_close() - nothing is put on the rings any more, and nothing taken off
 * @disk: whose requests fail from now on; those in the rings stay there
 */
void pollux_queues_close(struct pollux_disk *disk)
{
	struct pollux_queue *queue;
	unsigned int index;

	for (index = 0; index < disk->queue_count; index++) {
		queue = &disk->queues[index];
		spin_lock_irq(&queue->lock);
		queue->stopped = true;
		rcu_assign_pointer(queue->used, NULL);
		spin_unlock_irq(&queue->lock);
	}
	/* In RCU sections polls look at the used index, submitters kick, and all of them and interrupts start work. */
	synchronize_rcu();
}

/**
 * pollux_queues_stop() - no work is left, either
 * @disk: whose queues are closed; no request of it is in flight
 */
void pollux_queues_stop(struct pollux_disk *disk)
{
	unsigned int index;

	for (index = 0; index < disk->queue_count; index++) {
		cancel_delayed_work_sync(&disk->queues[index].watch);
		disk->queues[index].watched = false;
	}
}

/**
 * pollux_queues_fail() - ends all requests in the rings with an error
 * @disk: whose device has been reset, and whose queues are closed
 *
 * Each request is completed once: either it was taken off the ring before, or it is detached here.
 */
void pollux_queues_fail(struct pollux_disk *disk)
{
	struct pollux_request *request;
	struct pollux_queue *queue;
	unsigned int index;

	for (index = 0; index < disk->queue_count; index++) {
		queue = &disk->queues[index];
		spin_lock_irq(&queue->lock);
		while ((request = virtqueue_detach_unused_buf(queue->vq))) {
			request->status = VIRTIO_BLK_S_IOERR;
			chain_add(&queue->parked, request);
			queue->waiting++;
		}
		queue->plain = 0;
		queue->polled = 0;
		spin_unlock_irq(&queue->lock);
		mod_delayed_work(pollux_workers, &queue->watch, 0);
	}
}

/**
 * pollux_queues_broken() - has the device gone, or broken the rules of a ring?
 * @disk: whose it is
 *
 * Return: whether one of its rings is no longer used for that.
 */
bool pollux_queues_broken(struct pollux_disk *disk)
{
	struct pollux_queue *queue;
	unsigned int index;
	bool broken = false;

	for (index = 0; index < disk->queue_count && !broken; index++) {
		queue = &disk->queues[index];
		spin_lock_irq(&queue->lock);
		broken = !queue->stopped && virtqueue_is_broken(queue->vq);
		spin_unlock_irq(&queue->lock);
	}
	return broken;
}

#ifdef POLLUX_HAS_VIRTQUEUE_INFO
int compat_find_vqs(struct pollux_disk *disk, struct virtqueue **vqs)
{
	struct irq_affinity affinity = {};
	struct virtqueue_info *infos;
	unsigned int index;
	int error;

	infos = kcalloc(disk->queue_count, sizeof(*infos), GFP_KERNEL);
	if (!infos)
		return -ENOMEM;
	for (index = 0; index < disk->queue_count; index++) {
		infos[index].name = disk->queues[index].name;
		infos[index].callback = pollux_interrupt;
	}
	error = virtio_find_vqs(disk->vdev, disk->queue_count, vqs, infos, &affinity);
	kfree(infos);
	return error;
}
#else
int compat_find_vqs(struct pollux_disk *disk, struct virtqueue **vqs)
{
	struct irq_affinity affinity = {};
	vq_callback_t **callbacks;
	unsigned int index;
	const char **names;
	int error = -ENOMEM;

	callbacks = kcalloc(disk->queue_count, sizeof(*callbacks), GFP_KERNEL);
	names = kcalloc(disk->queue_count, sizeof(*names), GFP_KERNEL);
	if (!callbacks || !names)
		goto out;
	for (index = 0; index < disk->queue_count; index++) {
		names[index] = disk->queues[index].name;
		callbacks[index] = pollux_interrupt;
	}
	error = virtio_find_vqs(disk->vdev, disk->queue_count, vqs, callbacks, names, &affinity);
out:
	kfree(callbacks);
	kfree(names);
	return error;
}
#endif
