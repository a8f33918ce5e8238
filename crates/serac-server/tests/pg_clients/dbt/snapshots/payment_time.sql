{% snapshot payment_time %}
{{ config(unique_key="id", strategy="timestamp", updated_at="loaded_at") }}
select id, amount, loaded_at from {{ source("raw", "payment") }}
{% endsnapshot %}
