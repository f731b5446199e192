// SPDX-License-Identifier: GPL-2.0
/*
 * A device that goes: for good, with a driver that lets go of it, with the machine, or for a sleep or a reset.
 */
#include <linux/sched/mm.h>

#include "pollux_blk.h"

/*
 * A PCI device that was pulled out reads as all ones, which is no state of a device: to wait for its reset would never
 * end, and it does not write to memory any more.
 */
static void reset(struct virtio_device *vdev)
{
	if (vdev->config->get_status(vdev) != 0xff)
		virtio_reset_device(vdev);
}

/*
 * What is in the rings will not complete: it fails now, and so does what comes later. Queues close first, so that a
 * device that has been reset gets no more requests.
 */
static void fail_all(struct pollux_disk *disk)
{
	pollux_queues_close(disk);
	reset(disk->vdev);
	pollux_queues_fail(disk);
}

/**
 * pollux_broken() - fails all requests if the device has gone, or has broken the rules of a ring
 * @work: the disk's @broken_work; no interrupt tells of that
 */
void pollux_broken(struct work_struct *work)
{
	struct pollux_disk *disk = container_of(to_delayed_work(work), struct pollux_disk, broken_work);

	if (pollux_queues_broken(disk)) {
		dev_err(&disk->vdev->dev, "the device has broken or gone: all requests of %s fail from now on\n",
			disk->gendisk->disk_name);
		fail_all(disk);
	} else if (READ_ONCE(disk->draining)) {
		queue_delayed_work(pollux_workers, &disk->broken_work, HZ / 10);
	}
}

/**
 * pollux_watch_device() - checks again and again whether the device has gone, until pollux_shut_down()
 * @disk: of which a caller waits for all requests to end. A device that takes its time is waited for, as it may still
 *	write to memory; one that has gone will not.
 */
void pollux_watch_device(struct pollux_disk *disk)
{
	WRITE_ONCE(disk->draining, true);
	mod_delayed_work(pollux_workers, &disk->broken_work, 0);
}

/**
 * pollux_shut_down() - resets the device, and sees that nobody uses its queues any more
 * @disk: of which no request is in flight
 */
void pollux_shut_down(struct pollux_disk *disk)
{
	pollux_queues_close(disk);
	reset(disk->vdev);
	/* A change of the configuration may have come until now. */
	cancel_work_sync(&disk->config_work);
	WRITE_ONCE(disk->draining, false);
	cancel_delayed_work_sync(&disk->broken_work);
	/* The last, as that may start work of the queues. */
	pollux_queues_stop(disk);
}

/**
 * pollux_power_off() - has the device leave memory alone: the machine is about to go off, or to start again
 * @vdev: the device. Without this, the virtio core would break its rings, as if the device had gone. Requests of tasks
 *	that still run fail from now on.
 */
void pollux_power_off(struct virtio_device *vdev)
{
	struct pollux_disk *disk = vdev->priv;

	/* It may not have come back from its sleep. */
	if (disk->has_vqs)
		fail_all(disk);
}

/**
 * pollux_freeze() - lets go of the device's queues, while requests wait
 * @vdev: the device, which is about to lose its state: it sleeps, or is reset
 *
 * Return: 0.
 */
int pollux_freeze(struct virtio_device *vdev)
{
	struct pollux_disk *disk = vdev->priv;
	struct request_queue *queue = disk->gendisk->queue;
	unsigned int flags;

	/* It may not have come back from the last one: nobody would wake it twice. */
	pollux_wake(disk);
	/* Nothing is in flight, then nothing is submitted. Tasks that poll are frozen: the watch polls for them. */
	pollux_watch_device(disk);
	flags = compat_freeze(queue);
	/* It waits for whoever has begun to run the queue: that might find what comes after. */
	blk_mq_quiesce_queue(queue);
	disk->asleep = true;
	compat_unfreeze(queue, flags);
	WRITE_ONCE(disk->removing, true);
	pollux_shut_down(disk);
	pollux_queues_lose(disk);
	return 0;
}

/**
 * pollux_restore() - the reverse of pollux_freeze()
 * @vdev: the device
 *
 * Return: 0 or an error.
 */
int pollux_restore(struct virtio_device *vdev)
{
	struct pollux_disk *disk = vdev->priv;
	/* Memory may be swapped out to this disk. */
	unsigned int flags = memalloc_noio_save();
	int error = pollux_queues_find(disk);

	memalloc_noio_restore(flags);
	if (error) {
		dev_err(&vdev->dev, "it does not come back (%d): all requests of %s fail from now on\n", error,
			disk->gendisk->disk_name);
	} else {
		virtio_device_ready(vdev);
		pollux_restore_write_cache(disk);
		WRITE_ONCE(disk->removing, false);
		queue_work(pollux_workers, &disk->config_work);
	}
	pollux_wake(disk);
	return error;
}

/**
 * pollux_wake() - lets go of the requests that wait since pollux_freeze(), if it was called
 * @disk: without virtqueues they fail, or else its removal would wait for them
 */
void pollux_wake(struct pollux_disk *disk)
{
	if (disk->asleep)
		blk_mq_unquiesce_queue(disk->gendisk->queue);
	disk->asleep = false;
}
