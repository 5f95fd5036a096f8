// Rows of an Engram table read from disk: many blocks at a time, each with one direct read, into the caller's buffer.
//
// Rows are of a fixed size and none crosses a block of 4096 bytes; block 0 is the header, so row r of the file lies in
// block 1 + r / rows_per_block. Rows of one block that a batch wants together, duplicates above all, cost one read.
//
// Two engines: io_uring, where the kernel has it and this was built with liburing, and threads that call pread. A read
// that has been given to the kernel cannot be taken back, so blocks are read into buffers of the engine's own, and a
// batch that is over its deadline is left behind whole: nothing is written to the caller's memory after the return.

#include "core.hpp"

namespace {

void serve(Table &table) {
    Buffer buffer = aligned(kBlock);
    for (;;) {
        std::shared_ptr<Batch> batch;
        size_t mine;
        {
            std::unique_lock<std::mutex> hold(table.mutex);
            table.work.wait(hold, [&] { return table.closing || !table.queue.empty(); });
            if (table.closing) return;
            batch = table.queue.front();
            mine = batch->next.fetch_add(1);
            if (mine + 1 >= batch->jobs.size()) table.queue.pop_front();
            if (mine >= batch->jobs.size()) continue;
        }
        const Job &job = batch->jobs[mine];
        Clock::time_point begin = Clock::now();
        ssize_t got;
        do {
            got = pread(table.descriptor, buffer.get(), kBlock, (1 + job.block) * static_cast<int64_t>(kBlock));
        } while (got < 0 && errno == EINTR);
        int error = got < 0 ? errno : 0;
        count(table, Clock::now() - begin, job.count);
        std::lock_guard<std::mutex> hold(batch->mutex);
        settle(table, *batch, job, buffer.get(), got, error);
    }
}

Result by_threads(Table &table, const std::shared_ptr<Batch> &batch, Clock::time_point until) {
    {
        std::lock_guard<std::mutex> hold(table.mutex);
        table.queue.push_back(batch);
    }
    table.work.notify_all();
    std::unique_lock<std::mutex> hold(batch->mutex);
    if (!batch->done.wait_until(hold, until, [&] { return batch->over; })) {
        batch->over = true;
        // Whoever has not begun one of its reads finds none left.
        batch->next.store(batch->jobs.size());
        batch->result = late(*batch);
        std::lock_guard<std::mutex> queued(table.mutex);
        auto found = std::find(table.queue.begin(), table.queue.end(), batch);
        if (found != table.queue.end()) table.queue.erase(found);
    }
    return batch->result;
}

#ifdef SPARKD_LIBURING
// One read on its way. It and its buffer live until the kernel has answered, whatever has become of the batch.
struct Flight {
    std::shared_ptr<Batch> batch;
    size_t job;
    Clock::time_point begin;
    Buffer buffer;
};

Result by_uring(Table &table, const std::shared_ptr<Batch> &batch, Clock::time_point until) {
    std::lock_guard<std::mutex> turn(table.turn);
    size_t next = 0, flying = 0;
    // Buffers of earlier batches that were late come back here too.
    std::vector<std::unique_ptr<Flight>> spare;
    std::unique_lock<std::mutex> hold(batch->mutex);
    while (!batch->over) {
        unsigned added = 0;
        while (next < batch->jobs.size() && flying < static_cast<size_t>(table.depth)) {
            io_uring_sqe *entry = io_uring_get_sqe(&table.ring);
            if (entry == nullptr) break;
            std::unique_ptr<Flight> flight;
            if (spare.empty()) {
                flight.reset(new Flight{nullptr, 0, {}, aligned(kBlock)});
            } else {
                flight = std::move(spare.back());
                spare.pop_back();
            }
            flight->batch = batch;
            flight->job = next;
            flight->begin = Clock::now();
            int64_t offset = (1 + batch->jobs[next].block) * static_cast<int64_t>(kBlock);
            io_uring_prep_read(entry, table.descriptor, flight->buffer.get(), kBlock, offset);
            io_uring_sqe_set_data(entry, flight.release());
            ++next, ++flying, ++added;
        }
        if (added != 0) io_uring_submit(&table.ring);
        auto rest = std::chrono::duration_cast<std::chrono::nanoseconds>(until - Clock::now()).count();
        io_uring_cqe *answer = nullptr;
        int failed = -ETIME;
        if (rest > 0) {
            __kernel_timespec limit{rest / 1000000000, rest % 1000000000};
            failed = io_uring_wait_cqe_timeout(&table.ring, &answer, &limit);
        }
        if (failed == -EINTR || failed == -EAGAIN) continue;
        if (failed != 0) {
            batch->over = true;
            batch->result = late(*batch);
            if (failed != -ETIME) batch->result = Result{kErrno, -failed, batch->result.row, -1};
            break;
        }
        do {
            std::unique_ptr<Flight> flight(static_cast<Flight *>(io_uring_cqe_get_data(answer)));
            int got = answer->res;
            io_uring_cqe_seen(&table.ring, answer);
            if (flight->batch == batch) {
                --flying;
                const Job &job = batch->jobs[flight->job];
                if (got == -EINTR || got == -EAGAIN) {
                    // It was not tried: again, as a read of its own.
                    ssize_t again = pread(
                        table.descriptor, flight->buffer.get(), kBlock, (1 + job.block) * static_cast<int64_t>(kBlock)
                    );
                    got = again < 0 ? -errno : static_cast<int>(again);
                }
                count(table, Clock::now() - flight->begin, job.count);
                settle(table, *batch, job, flight->buffer.get(), got < 0 ? -1 : got, got < 0 ? -got : 0);
            }
            flight->batch.reset();
            spare.push_back(std::move(flight));
        } while (io_uring_peek_cqe(&table.ring, &answer) == 0);
    }
    return batch->result;
}
#endif

Result read_rows(Table &table, const int64_t *rows, size_t number, int64_t first, unsigned char *out, double seconds) {
    auto batch = std::make_shared<Batch>();
    batch->out = out;
    batch->wants.reserve(number);
    for (size_t place = 0; place < number; ++place) {
        int64_t row = rows[place] - first;
        if (row < 0 || row >= table.rows)
            std::memset(out + place * table.row_bytes, 0, table.row_bytes);
        else
            batch->wants.push_back(Want{row, place});
    }
    if (batch->wants.empty()) return batch->result;
    std::sort(batch->wants.begin(), batch->wants.end(), [](const Want &a, const Want &b) { return a.row < b.row; });
    for (size_t index = 0; index < batch->wants.size(); ++index) {
        int64_t block = batch->wants[index].row / table.rows_per_block;
        if (batch->jobs.empty() || batch->jobs.back().block != block)
            batch->jobs.push_back(Job{block, index, 1});
        else
            ++batch->jobs.back().count;
    }
    batch->left = batch->jobs.size();
    batch->ended.assign(batch->jobs.size(), false);
    auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    Result result;
#ifdef SPARKD_LIBURING
    result = table.uring ? by_uring(table, batch, until) : by_threads(table, batch, until);
#else
    result = by_threads(table, batch, until);
#endif
    std::lock_guard<std::mutex> hold(table.stats_mutex);
    ++table.stats.batches;
    table.stats.errors += result.code != kOk;
    table.stats.deepest =
        std::max<uint64_t>(table.stats.deepest, std::min<uint64_t>(batch->jobs.size(), table.depth));
    if (result.row >= 0) result.row += first;
    return result;
}

}  // namespace

// What a CUDA stream is given to call; all memory is pinned by the caller and lives as long as the graph.
struct HostCall {
    void *table;
    const int64_t *rows;
    uint64_t number;
    int64_t first;
    unsigned char *out;
    double seconds;
    const char *file;
};

extern "C" {

// NULL with errno set if the file cannot be opened or the threads not be made. use_uring: 0 never, 1 where it works.
void *sparkd_rows_open(
    const char *path, int64_t rows, int64_t row_bytes, int64_t rows_per_block, int depth, int use_uring
) {
    auto table = std::make_unique<Table>();
    table->descriptor = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (table->descriptor < 0) return nullptr;
    table->rows = rows;
    table->row_bytes = row_bytes;
    table->rows_per_block = rows_per_block;
    table->depth = depth;
    try {
#ifdef SPARKD_LIBURING
        table->uring = use_uring != 0 && io_uring_queue_init(depth, &table->ring, 0) == 0;
#else
        (void)use_uring;
#endif
        if (!table->uring) {
            Table *shared = table.get();
            for (int index = 0; index < depth; ++index) table->threads.emplace_back([shared] { serve(*shared); });
        }
    } catch (...) {
        {
            std::lock_guard<std::mutex> hold(table->mutex);
            table->closing = true;
        }
        table->work.notify_all();
        for (std::thread &thread : table->threads) thread.join();
        close(table->descriptor);
        errno = EAGAIN;
        return nullptr;
    }
    return table.release();
}

// Rows of the table from `first` on; those that the file does not hold become zeros. Returns result->code.
int sparkd_rows_read(
    void *handle, const int64_t *rows, uint64_t number, int64_t first, unsigned char *out, double seconds,
    Result *result
) {
    try {
        *result = read_rows(*static_cast<Table *>(handle), rows, number, first, out, seconds);
    } catch (const std::bad_alloc &) {
        *result = Result{kErrno, ENOMEM, number != 0 ? rows[0] : -1, -1};
    }
    return result->code;
}

// As cudaLaunchHostFunc calls it: nobody is there to take an error, so the process ends with the sentence.
void sparkd_rows_host_call(void *data) {
    auto *call = static_cast<HostCall *>(data);
    Result result;
    if (sparkd_rows_read(call->table, call->rows, call->number, call->first, call->out, call->seconds, &result) == kOk)
        return;
    const char *what = result.code == kShort ? "a short read"
        : result.code == kLate                ? "no answer in time"
                                              : std::strerror(result.error);
    std::fprintf(
        stderr, "\nadapter engram_rows: error: %s: row %lld: %s\n", call->file, static_cast<long long>(result.row), what
    );
    std::fflush(stderr);
    _exit(kNotAsAsked);
}

int sparkd_rows_uses_uring(void *handle) { return static_cast<Table *>(handle)->uring; }

void sparkd_rows_stats(void *handle, Stats *stats) {
    auto *table = static_cast<Table *>(handle);
    std::lock_guard<std::mutex> hold(table->stats_mutex);
    *stats = table->stats;
}

void sparkd_rows_close(void *handle) {
    std::unique_ptr<Table> table(static_cast<Table *>(handle));
    {
        std::lock_guard<std::mutex> hold(table->mutex);
        table->closing = true;
    }
    table->work.notify_all();
    for (std::thread &thread : table->threads) thread.join();
#ifdef SPARKD_LIBURING
    if (table->uring) io_uring_queue_exit(&table->ring);
#endif
    close(table->descriptor);
}
}
