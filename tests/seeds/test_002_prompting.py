"""The samples of "Prompting with DataFrames", with the import changed and a server on loopback for those of the cloud.

What a sample takes for granted (``df``, an import, a bucket, a server at an address) is made around it. Addresses of
servers that are written into a sample are those of the test's server.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock import functions
from penstock.ai.provider_registry import detach_providers
from penstock.errors import InvalidArgumentError, MissingExtraError
from penstock.testing import ModelRequest, ModelServer
from tests.io.tables.hub import running_hub
from tests.media_files import write_pdf
from tests.seeds.samples import run_sample, run_sample_apart
from tests.storage.servers import s3_client


def answer(request: ModelRequest) -> str:
    """Repeat what was asked, as a text or for each field of the form that is asked for."""
    if request.schema:
        return json.dumps({name: f"{name} of: {request.text}" for name in request.schema["properties"]})
    return f"On: {request.text}"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    """What OpenAI is to the samples."""
    with ModelServer(answer=answer, api_key="sk-sample", in_thread=True) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-sample")
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai_url)
        yield server
        detach_providers()


@pytest.fixture
def df() -> ps.DataFrame:
    """What later samples prompt about."""
    return ps.from_pydict({
        "input": ["What sound does a cat make?"],
        "complex_question": ["Why?"],
        "review": ["I love it."],
        "name": ["Ann"],
        "context": ["The tower is in Paris."],
        "question": ["Where is the tower?"],
    })  # fmt: skip


def bodies(server: ModelServer) -> list[dict[str, Any]]:
    return [request.body for request in server.requests]


# --- prompt ---


def test_prompt(server: ModelServer, capsys: pytest.CaptureFixture[str]) -> None:
    sample = """
import daft

from daft.functions import prompt

# read some sample data

df = daft.from_pydict({
    "input": [
        "What sound does a cat make?",
        "What sound does a dog make?",
        "What sound does a cow make?",
        "What does the fox say?",
    ]
})

# generate responses using a chat model

df = df.with_column("response", prompt(daft.col("input"), model="gpt-5.1"))

df.show()
"""
    found = run_sample(sample)["df"].to_pydict()
    assert "On: What does the fox say?" in capsys.readouterr().out
    assert found["response"] == [f"On: {text}" for text in found["input"]]
    assert {(each.path, each.body["model"]) for each in server.requests} == {("/v1/responses", "gpt-5.1")}


# --- 1. Automatic Parallelization ---


@pytest.fixture
def my_bucket(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A client of the samples' bucket, which the environment leads to."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIATESTKEY")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very-secret-value")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    client = s3_client({"endpoint_url": s3_endpoint, "key": "AKIATESTKEY", "secret": "very-secret-value"})
    client.create_bucket(Bucket="my-bucket")
    yield client
    client.close()


def test_automatic_parallelization(server: ModelServer, my_bucket: Any) -> None:
    for part in range(2):
        content = io.BytesIO()
        pq.write_table(pa.table({"review_text": [f"Review {part}.{row}" for row in range(3)]}), content)
        my_bucket.put_object(Bucket="my-bucket", Key=f"customer-reviews/{part}.parquet", Body=content.getvalue())
    sample = """
import daft

from daft.functions import prompt

# Read any data source

df = daft.read_parquet("s3://my-bucket/customer-reviews/*.parquet")

# Generate sentiment analysis at scale

df = df.with_column(
    "sentiment",
    prompt(
        daft.col("review_text"),
        system_message="Classify the sentiment as positive, negative, or neutral.",
        model="gpt-5-mini"
    )
)

# Daft automatically batches and parallelizes across your cluster

df.write_parquet("s3://my-bucket/analyzed-reviews/")
"""
    run_sample(sample)
    rows = ps.read_parquet("s3://my-bucket/analyzed-reviews/").to_pylist()
    assert len(rows) == 6
    assert all(row["sentiment"] == f"On: {row['review_text']}" for row in rows)
    assert {body["instructions"] for body in bodies(server)} == {
        "Classify the sentiment as positive, negative, or neutral."
    }


# --- 2. Native Multimodal Support ---


def test_images(server: ModelServer, my_bucket: Any) -> None:
    from tests.media.images.samples import jpeg, picture

    for name in ("lamp.jpg", "chair.jpg"):
        my_bucket.put_object(Bucket="my-bucket", Key=f"product-images/{name}", Body=jpeg(picture()))
    sample = """
import daft

from daft.functions import prompt, download

# Load images and text together

df = daft.from_glob_path("s3://my-bucket/product-images/*.jpg")

df = df.with_column("image", decode_image(daft.col("path").download()))

# Prompt with both text and images

df = df.with_column(
    "description",
    prompt(
        messages=[
            daft.lit("Describe this product image in detail:"),
            daft.col("image")
        ],
        model="gpt-5"
    )
)
"""
    found = run_sample(sample, decode_image=functions.decode_image)["df"].to_pydict()
    assert len(found["description"]) == 2
    assert all("Describe this product image in detail:" in text for text in found["description"])
    parts = bodies(server)[0]["input"][0]["content"]
    assert [part["type"] for part in parts] == ["input_text", "input_image"]
    assert parts[1]["image_url"].startswith("data:image/")


def test_files(server: ModelServer, tmp_path: Path) -> None:
    papers = {f"papers/{n}.pdf": Path(write_pdf(tmp_path / f"{n}.pdf", [f"Paper {n}."])).read_bytes() for n in (1, 2)}
    sample = """
import daft

from daft.functions import prompt, file

df = daft.from_glob_path("hf://datasets/Eventual-Inc/sample-files/papers/*.pdf")

df = df.with_column("file", file(daft.col("path")))

df = df.with_column(
    "summary",
    prompt(
        messages=[daft.lit("Summarize this research paper:"), daft.col("file")],
        model="gpt-5-nano"
    )
)
"""
    with running_hub() as hub:
        hub.repos["Eventual-Inc/sample-files"] = {"main": papers}
        asked = {"HF_ENDPOINT": hub.url}
        printed = run_sample_apart(f"{sample}\nprint(df.to_pydict()['summary'])", tmp_path, asked)
    assert printed.count("Summarize this research paper:") == 2
    sent = [body["input"][0]["content"] for body in bodies(server)]
    assert [[part["type"] for part in parts] for parts in sent] == [["input_text", "input_file"]] * 2
    assert {parts[1]["filename"] for parts in sent} == {"1.pdf", "2.pdf"}


# --- 3. Structured Outputs with Native Struct Support ---


def test_structured_outputs(server: ModelServer, capsys: pytest.CaptureFixture[str]) -> None:
    sample = """
import daft

from daft import prompt, unnest

from pydantic import BaseModel, Field

class Anime(BaseModel):
    show: str = Field(description="The name of the anime show")
    character: str = Field(description="The name of the character")
    explanation: str = Field(description="Why the character says the quote")

df = daft.from_pydict({
    "quote": [
        "I am going to be the king of the pirates!",
        "I'm going to be the next Hokage!",
    ]
})

df = df.with_column(
    "classification",
    prompt(
        daft.col("quote"),
        system_message="Classify the anime based on the quote.",
        return_format=Anime,
        model="gpt-5-nano",
    )
).select("quote", unnest(daft.col("classification")))

df.show(format="fancy", max_width=80)
"""
    df = run_sample(sample)["df"]
    assert "I'm going to be the next Hokage!" in capsys.readouterr().out
    assert df.columns == ["quote", "show", "character", "explanation"]
    assert df.to_pydict()["character"] == [
        "character of: I am going to be the king of the pirates!",
        "character of: I'm going to be the next Hokage!",
    ]
    form = bodies(server)[0]["text"]["format"]
    assert form["schema"]["properties"]["show"]["description"] == "The name of the anime show"


# --- 4. Flexible Template Composition ---


def test_template(server: ModelServer) -> None:
    sample = """
from daft.functions import prompt, format

def answer_in_language(language: str, column_name: str) -> daft.Expression:
    return format(
        "Answer the following question in {}: {}",
        daft.lit(language),
        daft.col(column_name)
    )

df = daft.from_pydict({
    "question": [
        "What is the capital of France?",
        "Who invented the telephone?",
    ]
})

df = df.with_column(
    "spanish_answer",
    prompt(
        answer_in_language("Spanish", "question"),
        model="gpt-5"
    )
)
"""
    assert run_sample(sample)["df"].to_pydict()["spanish_answer"] == [
        "On: Answer the following question in Spanish: What is the capital of France?",
        "On: Answer the following question in Spanish: Who invented the telephone?",
    ]


def test_template_by_a_function(server: ModelServer, df: ps.DataFrame) -> None:
    sample = '''
@daft.func
def build_prompt(context: str, question: str, max_words: int) -> str:
    return f"""
Context: {context}
Question: {question}
Answer in at most {max_words} words.
"""

df = df.with_column(
    "answer",
    prompt(
        build_prompt(daft.col("context"), daft.col("question"), daft.lit(50)),
        model="gpt-5"
    )
)
'''
    found = run_sample(sample, df=df, prompt=functions.prompt)["df"].to_pydict()["answer"]
    wanted = "\nContext: The tower is in Paris.\nQuestion: Where is the tower?\nAnswer in at most 50 words.\n"
    assert found == [f"On: {wanted}"]


# --- Swap Providers Without Changing Code ---


def test_openai(server: ModelServer, df: ps.DataFrame) -> None:
    sample = """
import daft

from daft.functions import prompt

# OpenAI is the default - just set your API key

df = df.with_column("result", prompt(daft.col("input"), model="gpt-5"))
"""
    assert run_sample(sample, df=df)["df"].to_pydict()["result"] == ["On: What sound does a cat make?"]


OPENROUTER = """
import os

import daft

from daft.functions import prompt

daft.set_provider(
    "openai",
    base_url="https://openrouter.ai/api/v1",
    api_key=os.environ.get("OPENROUTER_API_KEY")
)

df = df.with_column(
    "result",
    prompt(daft.col("input"), model="nvidia/nemotron-nano-9b-v2:free")
)
"""


def test_openrouter(server: ModelServer, df: ps.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-or-other")
    with ModelServer(api_key="sk-or-other", in_thread=True) as router:
        sample = OPENROUTER.replace("https://openrouter.ai/api/v1", router.openai_url)
        assert run_sample(sample, df=df)["df"].to_pydict()["result"] == ["What sound does a cat make?"]
        assert bodies(router)[0]["model"] == "nvidia/nemotron-nano-9b-v2:free"
    assert server.num_requests == 0


def test_openrouter_without_its_key_does_not_send_that_of_openai(server: ModelServer, df: ps.DataFrame) -> None:
    with pytest.raises(InvalidArgumentError, match="api_key is None; is its environment variable set"):
        run_sample(OPENROUTER, df=df)


def test_lm_studio(server: ModelServer, df: ps.DataFrame) -> None:
    sample = """
df = df.with_column(
    "result",
    prompt(
        daft.col("input"),
        model="google/gemma-3-4b",
        provider="lm_studio"
    )
)
"""
    with ModelServer(in_thread=True) as studio:
        ps.set_provider("lm_studio", base_url=studio.openai_url)  # on its own port it needs no word
        found = run_sample(sample, df=df, prompt=functions.prompt)["df"].to_pydict()["result"]
        assert found == ["What sound does a cat make?"]
        assert [each.path for each in studio.requests] == ["/v1/chat/completions"]


VLLM_ONLINE = """
daft.set_provider(
    "openai",
    api_key="none",
    base_url="http://localhost:8000/v1"
)

df = df.with_column(
    "result",
    prompt(daft.col("input"), model="google/gemma-3-4b-it")
)
"""


def test_vllm_online(df: ps.DataFrame, server: ModelServer) -> None:
    with ModelServer(in_thread=True) as vllm:
        sample = VLLM_ONLINE.replace("http://localhost:8000/v1", vllm.openai_url)
        found = run_sample(sample, df=df, prompt=functions.prompt)["df"].to_pydict()["result"]
        assert found == ["What sound does a cat make?"]
        assert bodies(vllm)[0]["model"] == "google/gemma-3-4b-it"


VLLM_OFFLINE = """
df = df.with_column(
    "result",
    prompt(
        daft.col("input"),
        provider="vllm-prefix-caching",
        model="Qwen/Qwen-8B"
    )
)
"""


def test_vllm_offline_needs_vllm(df: ps.DataFrame) -> None:
    with pytest.raises(MissingExtraError, match=r"no server at base_url= needs 'vllm'.*penstock\[vllm\]"):
        run_sample(VLLM_OFFLINE, df=df, prompt=functions.prompt)


def test_vllm_offline_by_a_server(df: ps.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    with ModelServer(in_thread=True) as vllm:
        monkeypatch.setenv("PENSTOCK_VLLM_BASE_URL", vllm.openai_url)
        found = run_sample(VLLM_OFFLINE, df=df, prompt=functions.prompt)["df"].to_pydict()["result"]
        assert found == ["What sound does a cat make?"]
        assert bodies(vllm)[0]["model"] == "Qwen/Qwen-8B"


# --- Advanced Features ---


def test_tools(server: ModelServer) -> None:
    sample = """
import daft

from daft.functions import prompt

df = daft.from_pydict({
    "query": ["Buy one get one free burritos in SF right now."]
})

df = df.with_column(
    "search_results",
    prompt(
        daft.col("query"),
        model="gpt-5",
        tools=[{"type": "web_search"}]
    )
)
"""
    found = run_sample(sample)["df"].to_pydict()["search_results"]
    assert found == ["On: Buy one get one free burritos in SF right now."]
    assert bodies(server)[0]["tools"] == [{"type": "web_search"}]


def test_reasoning(server: ModelServer, df: ps.DataFrame) -> None:
    sample = """
df = df.with_column(
    "deep_analysis",
    prompt(
        daft.col("complex_question"),
        model="gpt-5.1",
        reasoning={"effort": "high"},
    )
)
"""
    found = run_sample(sample, df=df, prompt=functions.prompt)["df"].to_pydict()["deep_analysis"]
    assert found == ["On: Why?"]
    assert bodies(server)[0]["reasoning"] == {"effort": "high"}


def test_both_apis(server: ModelServer, df: ps.DataFrame) -> None:
    sample = """
# Responses API (default for GPT-5)

df = df.with_column(
    "result",
    prompt(
        daft.col("input"),
        model="gpt-5",
        max_output_tokens=200  # Note: max_output_tokens, not max_tokens
    )
)

responses = df

# Chat Completions API (for GPT-4.1 and earlier)

df = df.with_column(
    "result",
    prompt(
        daft.col("input"),
        model="gpt-4.1-2025-04-14",
        max_tokens=200,  # Note: max_tokens
        temperature=0.7,
        use_chat_completions=True
    )
)
"""
    found = run_sample(sample, df=df, prompt=functions.prompt)
    for made in (
        found["responses"],
        found["df"],
    ):  # the second replaces the column of the first, which is not asked for
        assert made.to_pydict()["result"] == ["On: What sound does a cat make?"]
    by_responses, by_chat = server.requests
    assert by_responses.path == "/v1/responses"
    assert by_responses.body["max_output_tokens"] == 200
    assert by_chat.path == "/v1/chat/completions"
    assert (by_chat.body["max_tokens"], by_chat.body["temperature"]) == (200, 0.7)


# --- Structured Outputs with vLLM Online Serving ---


def test_guided_choice_and_regex(server: ModelServer, df: ps.DataFrame) -> None:
    sample = r"""
# Classification with guided choice

df = df.with_column(
    "sentiment",
    prompt(
        daft.col("review"),
        model="google/gemma-3-4b-it",
        extra_body={"structured_outputs": {"choice": ["positive", "negative"]}}
    )
)

# Regex-constrained generation

df = df.with_column(
    "email",
    prompt(
        format("Generate an email for {}", daft.col("name")),
        model="google/gemma-3-4b-it",
        extra_body={"structured_outputs": {"regex": r"\w+@\w+\.com\n"}}
    )
)
"""
    found = run_sample(sample, df=df, prompt=functions.prompt, format=functions.format)["df"].to_pydict()
    assert (found["sentiment"], found["email"]) == (["On: I love it."], ["On: Generate an email for Ann"])
    asked = sorted(str(body["structured_outputs"]) for body in bodies(server))
    assert asked == ["{'choice': ['positive', 'negative']}", str({"regex": r"\w+@\w+\.com\n"})]
