"""How fast is the engine? Decode at 1, 2, 4 and 8 streams, and prefill at several lengths, over its OpenAI API.

What such a measurement gets wrong easily, and what is done here:

* **The first run after a boot compiles.** Kernels are built, tuned and captured when a shape first comes, on Sparks
  for up to 36 minutes. Each case has a warm-up round of its own shape, which is not counted.
* **Idle clocks.** A GPU that was idle takes a while to clock up. The warm-up round comes right before those counted.
* **Cache hits.** The engine keeps what it has computed of former prompts, and finds it by the longest common prefix
  from the first token on. A prompt that is repeated is not computed at all, and one with a common beginning in part:
  prefill then looks many times as fast. So each prompt is random from its first token, with no fixed words before it,
  and goes to ``/v1/completions``, because a chat template would put the same tokens in front of all. Difference in
  the first token is what counts: whatever the size of a cache's pages, none can be shared then. How many tokens came
  from the cache all the same is asked of the engine, and said.
* **Chunks are not tokens.** Speculative decoding puts several tokens into one message of the stream, and
  ``--stream-interval`` or a slow client many more. Tokens are those that the engine counts in ``usage``; a time per
  token is that between two messages by the tokens that the second one brought.
* **The end of the sentence.** A model that stops early is measured over fewer tokens, and in a batch leaves the others
  faster. ``ignore_eos`` and ``min_tokens`` make all streams equally long; one that stops all the same is named.
* **Ramps.** While some streams of a batch still wait for their first token or have ended, fewer decode. The rate of a
  batch is that of the time in which all of them did.
* **More streams than the engine runs** wait for each other; that is no batch, and is said.
* **Whose clock.** A client sees tokens after the scheduler, the detokenizer and HTTP. Percentiles are those of the
  engine's own histograms, before and after; the client's stand beside them. Within a bucket they are interpolated, so
  they are no finer than the buckets. A histogram counts everybody's tokens: others at work are noticed, and said.
* **Tokens that are held back.** A client that gets no CPU, or a proxy that buffers, sees nothing and then all at once,
  which looks like thousands of tokens per second. A round whose tokens nearly all came at its end is counted from the
  request on and named; so are a client whose mean time per token is not the engine's, and one that the kernel let
  wait for a CPU.
* **The text matters** to speculative decoding: prose is guessed better than random words, code better than prose.
  Decode is measured on prose after a few random words. Compare like with like.
* **One number is none.** Each case is repeated; the median stands beside the lowest and the highest.
"""

from runtime.bench.report import Report

__all__ = ["Report"]
