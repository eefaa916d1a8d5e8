"""Ray as its users start it on one machine, quiet."""


def start() -> None:
    import logging
    import warnings

    import ray
    import ray.data

    warnings.filterwarnings("ignore")
    ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
