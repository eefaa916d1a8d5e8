"""Typed questions about a text, answered with a probability for every option: ``decide``.

questions            yes/no questions, choices and scores
answer_columns       probabilities to answers, all rows at once
decision_format      the probabilities that a call gives, in the ledger and in a column
decision_wire        the interface of a service for decisions

openai_decisions     OpenAI's ``/v1/decisions``
system_one           ``/v1/systemone`` of TypeSafe, Upstage, LiteLLM, OpenRouter; Perplexity has it at another path
labels               a language model as a judge: a prompt for each question, and labels of one token
composed_decider     several calls for the questions of one row: a judge, or a service that limits their number
remote_decider       choose one of these for a server
decision_services    TypeSafe, Perplexity and Upstage
transformers_decider a judge on this machine -> transformers_judge: the scores of the next token, without generating;
                     shared_prompts: the questions about a text compute it once

decided_labels       labels of ``classify_text`` and ``classify_image`` by a decision
decide_column        the column, and several calls of ``decide`` as one request

Every model here is a ``Prompter`` whose answer is the text that ``DecisionFormat`` reads, so calls, ledger, limits,
budget and batches work as in ``prompt``. The room may import ``providers``, ``local`` and everything below them;
providers import ``remote_decider`` when they are asked for a model.

Decisions
---------
- The ``probability`` of a yes/no question is the probability of yes, as in the services, so ``> 0.9`` means a likely
  yes.
- A judge answers a choice with a letter. Letters are single tokens that always differ; the words of options may not.
- A judge gets the text before the question: all questions about a row share a prefix that servers cache.
"""
