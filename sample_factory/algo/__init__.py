from sample_factory.runtime.old_names import PathWithOldNames

__path__ = PathWithOldNames(__path__)
