package bench

// definitions say what each figure of a report means, by the name that it has in JSON.
func definitions() map[string]string {
	return map[string]string{
		"accept_length":             "τ = 1 + accepted drafts / verify steps: tokens that a verify step emits, its own (bonus) token included; plain decoding has 1",
		"pooled":                    "accept length over all steps of all prompts; the interval is over prompts, or over passes where only counters tell",
		"macro":                     "mean over prompts of each one's accept length: long answers count no more than short ones",
		"acceptance_rate":           "accepted drafts / drafted tokens",
		"joint":                     "share of verify steps that accept the draft of position k and all before it; 1 + their sum is the accept length",
		"conditional":               "share of verify steps that accept position k among those that accepted the one before it",
		"tokens_per_second":         "completion tokens of a run's good requests, as the server's usage counts them, over its wall time less what failed attempts and requests took; geometric mean over runs, Student t interval",
		"request_tokens_per_second": "completion tokens / latency of each request",
		"decode_tokens_per_second":  "tokens after those of the first chunk / time from the first token to the last, of each request; where chunks are not counted, the first is taken for one token",
		"ttft_seconds":              "from sending a request, or in an open loop from when it was due, to its first token of thinking or answer",
		"ttfot_seconds":             "the same to the first token of the answer, after the thinking",
		"itl_seconds":               "time between tokens: the inverse of decode_tokens_per_second, one value for each request",
		"icl_seconds":               "time between chunks, all pooled; with speculation a chunk holds several tokens",
		"e2e_seconds":               "from sending a request, or in an open loop from when it was due, to its end; attempts that failed before are no part of it",
		"due_to_sent_seconds":       "how late hsx itself sent requests; a delay of the measuring, not of the server",
		"run_cv":                    "standard deviation / mean of a run's tokens per second: below 5 % is excellent, 10 % good, 20 % fair",
		"speedup":                   "tokens per second of the arm / of the baseline on these prompts: geometric mean over runs, in pairs where the arms took turns; in an open loop tokens / latency",
		"speedup_by_prompt":         "the same of each prompt's median run, tokens / latency: geometric mean over prompts, for prompts like these",
		"prompts_slower":            "prompts whose median run is slower than the baseline's",
		"wilcoxon_p":                "two-sided signed-rank test that prompts are as often and as much slower as faster",
		"detectable":                "relative difference that this many runs with this spread find with 80 % power at 5 %",
		"runs_to_settle":            "runs of each arm with which the ratio found, if it is right, would be told from the margin, or from 1 if it is slower",
		"break_even_accept_length":  "τ·B/S: the accept length at which speculation is as fast as the baseline, at the step cost measured; also what a step costs in plain steps",
		"speedup_at_promise":        "speedup × promised / measured accept length: the speed if the promise were kept at the same step cost",
		"equal_text":                "share of answers with the same text in each arm's first run, at temperature 0",
		"truncated":                 "share of good answers that ended at the token limit, whatever the server calls it",
		"foreign_tokens":            "share of the tokens that the server counted that are in no answer of ours, over passes without a failed request",
		"repetition":                "share of good answers of 64 tokens or more whose distinct 4-grams of words are below a fifth of all",
		"output_ratio":              "completion tokens of the arm / of the baseline, on the same questions",
		"step_seconds":              "fitted seconds of a verify step, and of each position drafted",
		"predicted":                 "not measured: from the acceptance of each position and the fitted cost of a step; for chains only",
	}
}
