"""Remedies for the names of Daft and Ray Data that the adapters refuse; the migration pages list them too."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.expr.missing_functions import INSTEAD

ON_PURPOSE = "left out on purpose: {} not supported"
OWN_SOURCE = "write a Source or Sink with the library of the store: docs/guides/custom-io.md shows one"


def _by_name(table: Mapping[str, str]) -> dict[str, str]:
    return {name: remedy for remedy, names in table.items() for name in names.split()}


DAFT = INSTEAD | _by_name(
    {
        ON_PURPOSE.format("HDF5 is"): "Hdf5File hdf5_attrs hdf5_file hdf5_keys hdf5_metadata as_hdf5 is_hdf5",
        ON_PURPOSE.format("Kafka, MCAP, Hudi, Paimon and Bigtable are"): (
            "read_kafka read_mcap read_hudi read_paimon write_paimon write_bigtable"
        ),
        ON_PURPOSE.format("Dask is"): "from_dask_dataframe to_dask_dataframe",
        OWN_SOURCE: "read_warc write_clickhouse",
        "use write_parquet(..., resume=True): a job continues where it stopped": "CheckpointConfig CheckpointStore",
        "events have other shapes here: use penstock.attach_subscriber(subscriber)": (
            "attach_subscriber detach_subscriber with_subscriber"
        ),
        "give DataFrames by name, as in daft.sql('select * from t', t=df)": (
            "Session session current_session set_session attach attach_table create_temp_table create_temp_view "
            "get_table list_tables"
        ),
        "use the library of the catalog: daft.read_iceberg(catalog.load_table('a.b')), df.write_iceberg(...)": (
            "Catalog Table Identifier attach_catalog get_catalog current_catalog list_catalogs set_catalog read_table "
            "write_table create_table create_table_if_not_exists drop_table create_namespace set_namespace"
        ),
        "call the function itself, by its Python name": "get_function udf",
        "write the function in Python: extensions of Daft are compiled for Daft": "load_extension",
        "use set_runner_native() or set_runner_ray()": "get_or_create_runner get_or_infer_runner_type get_context",
        "remove it: plans have no such options": "planning_config_ctx set_planning_config",
        "give num_cpus=, num_gpus= or memory_bytes= to the function": "ResourceRequest",
        "use join(read_parquet(path), on=key, how='anti')": "skip_existing",
        "use torch.utils.data.DataLoader(df.to_torch_iter_dataset())": "to_torch_dataloader",
        "use daft.File(url).open()": "open_file",
        "use from_glob_path(path), and download(col('path'))": "read_blob",
        "name the provider in the function, as in prompt(..., provider='openai')": "get_provider has_provider",
        "use prompt(text, provider=..., model=...)": "llm_generate",
        "name the model in the function, as in prompt(..., model='gpt-5-mini')": "set_model current_model",
        "use sql('select * from a asof left join b using (item, time)', a=..., b=...)": "join_asof",
        "use sql(), whose windows may have ranges": "range_between",
        "look at dtype.arrow": "is_decimal128 is_fixed_size_binary is_logical is_uuid",
        "use file.size(), or open() and seek()": "length offset position",
        "use file.mime_type(), such as 'image/png'": "is_image is_audio is_video",
        "use ImageFile(file) and the like for a file, cast() for a column": "as_image as_audio as_video",
    }
)
RAY = _by_name(
    {
        ON_PURPOSE.format("Dask, Mars, Modin, Spark and TensorFlow are"): (
            "from_dask from_mars from_modin from_spark from_tf to_dask to_mars to_modin to_spark"
        ),
        ON_PURPOSE.format("Kafka, MCAP and Hudi are"): "KafkaAuthConfig read_kafka write_kafka read_mcap read_hudi",
        OWN_SOURCE: (
            "BlockMetadata Datasink Datasource ReadTask WriteResult read_datasource write_datasink "
            "read_clickhouse read_mongo read_tfrecords write_clickhouse write_mongo write_tfrecords write_webdataset"
        ),
        "pass the objects, not references": "from_arrow_refs from_numpy_refs from_pandas_refs",
        "use to_arrow(), to_pandas() or iter_batches()": "to_arrow_refs to_numpy_refs to_pandas_refs",
        "use iter_batches() or iter_torch_batches()": "iter_tf_batches to_tf iter_jax_batches",
        "use read_sql()": "read_snowflake",
        "use write_sql()": "write_bigquery write_snowflake",
        "use read_delta() or read_iceberg() with the address of the table": (
            "DatabricksUnityCatalog read_unity_catalog read_delta_sharing_tables"
        ),
        "use read_parquet(), or a Source of your own": "read_lerobot read_zarr",
        "use map_batches() with a class that fits and transforms": "Preprocessor",
        "number the rows, union() the datasets and sort() by the numbers": "mix",
        "aggregate() the columns, or to_pandas().describe() for a few rows": "summary",
        "use ValueCounter, whose counts are exact": "ApproximateTopK",
        "deploy it with an HTTP ingress and give its address: OpenAIProcessorConfig(base_url=), or "
        "HttpRequestProcessorConfig(url=)": "ServeDeploymentProcessorConfig",
        "use groupby(key).map_groups(function)": ("AggregateFn AggregateFnV2 VectorizedAggregateFnV2"),
        "rename the files after the write": "FilenameProvider",
        "give iter_torch_batches(collate_fn=) a function, whose batches are dicts of arrays": (
            "CollateFn ArrowBatchCollateFn NumpyBatchCollateFn PandasBatchCollateFn"
        ),
        "use train_test_split(), or where() with hash() of the column": "streaming_train_test_split",
        "use from_arrow() with pyarrow.dataset.dataset(path, format='orc').to_table()": "read_orc",
        "use pyarrow.orc.write_table() with to_arrow()": "write_orc",
        "use where() on the columns of the folders, which reads only matching folders": "PathPartitionFilter",
        "start the server and use vLLMEngineProcessorConfig(base_url=)": "SGLangEngineProcessorConfig",
        "all expressions have one class here: use col(), lit() and the functions of this module": "Expr",
    }
)
PARAMETERS = {
    "filename_provider": RAY["FilenameProvider"],
    "partition_filter": RAY["PathPartitionFilter"],
}


def refused_name(owner: str, name: str) -> AttributeError:
    """Return the error for a name of an owner, such as ``ray.data.Dataset``."""
    if name.startswith("_"):
        return AttributeError(name)
    remedies, page = (RAY, "ray-data") if owner.startswith("ray") else (DAFT, "daft")
    remedy = remedies.get(name, f"docs/guides/migrating-from-{page}.md lists all names")
    return AttributeError(f"Penstock cannot honour {owner}.{name}; {remedy}.")
