{% snapshot payment_state %}
{{ config(unique_key="id", strategy="check", check_cols=["amount"], invalidate_hard_deletes=true) }}
select id, amount from {{ source("raw", "payment") }}
{% endsnapshot %}
