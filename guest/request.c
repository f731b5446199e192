// SPDX-License-Identifier: GPL-2.0
/*
 * A struct request as a virtio-blk request (VIRTIO 1.3, 5.2.6), and back.
 */
#include <linux/ioprio.h>
#include <linux/slab.h>

#include "pollux_blk.h"

/* What a device that completes a request without a status is taken to have said. */
#define NO_STATUS 0xff

static void set_range(struct virtio_blk_discard_write_zeroes *range, sector_t sector,
		      unsigned int sectors, u32 flags)
{
	range->sector = cpu_to_le64(sector);
	range->num_sectors = cpu_to_le32(sectors);
	range->flags = cpu_to_le32(flags);
}

/* The ranges of a discard, secure erase or write zeroes, as its payload. */
static blk_status_t add_ranges(struct request *rq, u32 flags)
{
	/* Only such discards are merged with others that are not adjacent. */
	bool several = req_op(rq) == REQ_OP_DISCARD && queue_max_discard_segments(rq->q) > 1;
	unsigned int wanted = several ? blk_rq_nr_discard_segments(rq) : 1, count = 0;
	struct virtio_blk_discard_write_zeroes *ranges;
	struct bio *bio;

	ranges = kmalloc_array(wanted, sizeof(*ranges), GFP_ATOMIC);
	if (!ranges)
		return BLK_STS_RESOURCE;

	if (several) {
		__rq_for_each_bio(bio, rq) {
			if (count < wanted)
				set_range(&ranges[count], bio->bi_iter.bi_sector, bio_sectors(bio), flags);
			count++;
		}
	} else {
		set_range(&ranges[count++], blk_rq_pos(rq), blk_rq_sectors(rq), flags);
	}
	if (WARN_ON_ONCE(count != wanted)) {
		kfree(ranges);
		return BLK_STS_IOERR;
	}

	rq->special_vec.bv_page = virt_to_page(ranges);
	rq->special_vec.bv_offset = offset_in_page(ranges);
	rq->special_vec.bv_len = count * sizeof(*ranges);
	rq->rq_flags |= RQF_SPECIAL_PAYLOAD;
	return BLK_STS_OK;
}

static void free_ranges(struct request *rq)
{
	if (rq->rq_flags & RQF_SPECIAL_PAYLOAD) {
		kfree(bvec_virt(&rq->special_vec));
		rq->rq_flags &= ~RQF_SPECIAL_PAYLOAD;
	}
}

/* The segments of its data. */
static blk_status_t map_data(struct request *rq, struct pollux_request *request)
{
	unsigned int segments = blk_rq_nr_phys_segments(rq);

	request->table.nents = 0;
	if (!segments)
		return BLK_STS_OK;
	request->table.sgl = request->segments;
	if (sg_alloc_table_chained(&request->table, segments, request->table.sgl,
				   POLLUX_INLINE_SEGMENTS)) {
		request->table.nents = 0;
		return BLK_STS_RESOURCE;
	}
	request->table.nents = compat_map_sg(rq, request->table.sgl);
	return BLK_STS_OK;
}

static void unmap_data(struct pollux_request *request)
{
	if (request->table.nents)
		sg_free_table_chained(&request->table, POLLUX_INLINE_SEGMENTS);
	request->table.nents = 0;
}

/* Who waits for it? See the explanation of @polled and @in_task. */
static void classify(struct pollux_queue *queue, struct request *rq, struct pollux_request *request)
{
	struct bio *bio;

	request->polled = !!rq->bio;
	request->in_task = req_op(rq) == REQ_OP_FLUSH && READ_ONCE(queue->flushes_polled);
	__rq_for_each_bio(bio, rq) {
		if (bio->bi_opf & REQ_POLLED)
			request->in_task = true;
		else
			request->polled = false;
	}
	/* A polled write that is to be stable ends with the flush that follows it. */
	if (request->in_task && (rq->rq_flags & RQF_FLUSH_SEQ) && !READ_ONCE(queue->flushes_polled))
		WRITE_ONCE(queue->flushes_polled, true);
}

/* The block layer tells the first bio where to poll; those that were merged with it poll there, too. */
static void share_cookie(struct request *rq)
{
	struct bio *bio;

	for (bio = rq->bio->bi_next; bio; bio = bio->bi_next)
		WRITE_ONCE(bio->bi_cookie, rq->bio->bi_cookie);
}

/**
 * pollux_prepare() - makes a request ready to be put on the ring, and starts it
 * @queue: whose ring that is
 * @rq: the request
 *
 * Return: BLK_STS_OK, and the caller owes pollux_unprepare(); or else nothing was changed.
 */
blk_status_t pollux_prepare(struct pollux_queue *queue, struct request *rq)
{
	struct pollux_request *request = blk_mq_rq_to_pdu(rq);
	struct virtio_device *vdev = queue->disk->vdev;
	blk_status_t status = BLK_STS_OK;
	u32 type, unmap;
	u64 sector = 0;

	switch (req_op(rq)) {
	case REQ_OP_READ:
		type = VIRTIO_BLK_T_IN;
		sector = blk_rq_pos(rq);
		break;
	case REQ_OP_WRITE:
		type = VIRTIO_BLK_T_OUT;
		sector = blk_rq_pos(rq);
		break;
	case REQ_OP_FLUSH:
		type = VIRTIO_BLK_T_FLUSH;
		break;
	case REQ_OP_DISCARD:
		type = VIRTIO_BLK_T_DISCARD;
		status = add_ranges(rq, 0);
		break;
	case REQ_OP_SECURE_ERASE:
		type = VIRTIO_BLK_T_SECURE_ERASE;
		status = add_ranges(rq, 0);
		break;
	case REQ_OP_WRITE_ZEROES:
		type = VIRTIO_BLK_T_WRITE_ZEROES;
		unmap = rq->cmd_flags & REQ_NOUNMAP ? 0 : VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP;
		status = add_ranges(rq, unmap);
		break;
	case REQ_OP_DRV_IN:
		type = VIRTIO_BLK_T_GET_ID; /* the only one there is: see sysfs.c */
		break;
	default:
		return BLK_STS_NOTSUPP;
	}
	if (status)
		return status;

	request->header.type = cpu_to_virtio32(vdev, type);
	request->header.ioprio = cpu_to_virtio32(vdev, req_get_ioprio(rq));
	request->header.sector = cpu_to_virtio64(vdev, sector);
	request->status = NO_STATUS;
	status = map_data(rq, request);
	if (status) {
		free_ranges(rq);
		return status;
	}
	classify(queue, rq, request);
	blk_mq_start_request(rq);
	/* A flush has no bio. */
	if (request->in_task && rq->bio)
		share_cookie(rq);
	return BLK_STS_OK;
}

/**
 * pollux_unprepare() - frees what pollux_prepare() has allocated
 * @rq: the request, which is not on the ring
 */
void pollux_unprepare(struct request *rq)
{
	unmap_data(blk_mq_rq_to_pdu(rq));
	free_ranges(rq);
}

/**
 * pollux_add() - puts a prepared request on the ring; under the queue's lock
 * @queue: where
 * @request: what
 *
 * Return: 0, or what virtqueue_add_sgs() says.
 */
int pollux_add(struct pollux_queue *queue, struct pollux_request *request)
{
	struct scatterlist header, status, *lists[3];
	unsigned int out = 0, in = 0;
	u32 type = virtio32_to_cpu(queue->vq->vdev, request->header.type);

	sg_init_one(&header, &request->header, sizeof(request->header));
	lists[out++] = &header;
	if (request->table.nents) {
		if (type == VIRTIO_BLK_T_IN || type == VIRTIO_BLK_T_GET_ID)
			lists[out + in++] = request->table.sgl;
		else
			lists[out++] = request->table.sgl;
	}
	sg_init_one(&status, &request->status, sizeof(request->status));
	lists[out + in++] = &status;
	return virtqueue_add_sgs(queue->vq, lists, out, in, request, GFP_ATOMIC);
}

/**
 * pollux_status() - how a request has ended
 * @request: taken off the ring
 *
 * Return: the block layer's word for it. What the specification does not name is an error.
 */
blk_status_t pollux_status(const struct pollux_request *request)
{
	switch (READ_ONCE(request->status)) {
	case VIRTIO_BLK_S_OK:
		return BLK_STS_OK;
	case VIRTIO_BLK_S_UNSUPP:
		return BLK_STS_NOTSUPP;
	default:
		return BLK_STS_IOERR;
	}
}
